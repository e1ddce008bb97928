/* Registered memory whose pages go away, what requests on it give, and signals of the program beside it. */
#ifndef ABSENT_H
#define ABSENT_H

#include <signal.h>

#include "endpoint.h"

/* Bytes of a message: more than a page, and some packets. */
#define MESSAGE 8192

/* How pages of registered memory go. */
enum loss {
	UNMAPPED,
	PROTECTED,
	READ_ONLY,
	TRUNCATED,
	/* With MADV_DONTNEED: not lost, but zeros. */
	GIVEN_BACK,
	/* Huge pages that are not reserved, of which the machine has none free. */
	NO_HUGE_PAGE,
	LOSSES
};

/* Registered memory. */
struct memory {
	unsigned char *at;
	size_t length;
	int fd;
	struct ibv_mr *mr;
};

/* Maps memory that can be lost so, and registers it. */
void make_memory(struct memory *memory, struct endpoint *endpoint, enum loss loss);
/* Loses the second page of it. */
void lose(struct memory *memory, enum loss loss);
void free_memory(struct memory *memory);

/* Completes requests without a poll of this thread, so that the driver thread executes them. */
extern bool driver_executes;

/* Runs every operation on memory that is lost, with the memory at either end, while another thread
 * transfers at least 1000 messages; checks all statuses and states. */
void run_operations(enum loss loss);

/* Checks that a fault of the program itself still has the effect of its action. */
void check_faults_end_the_process(void);
void check_faults_reach(int flags);

void signals_default(void);
void signals_ignored(void);
void signals_handler_before(void);
void signals_handler_after(void);
void signals_handler_of_other_calls(void);
void signals_blocked(void);
void signals_in_a_vforked_child(void);
void paging_on_demand(void);
void paging_implicit(void);
void paging_advice(void);

#endif
