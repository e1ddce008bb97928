/* Memory windows and device memory, as programs of libibverbs use them. */
#ifndef WINDOWS_H
#define WINDOWS_H

void capabilities(void);
void type_1(void);
void type_2(void);
void extended(void);
void refused(void);
void owners(void);
void device_copies(void);
void device_transfers(void);
void device_windows(void);

#endif
