/* Memory windows and device memory, as programs of libibverbs use them. */
#include <stdio.h>

#include "check.h"
#include "windows.h"

static const struct scenario scenarios[] = {
	{"window-capabilities", capabilities},
	{"window-type-1", type_1},
	{"window-type-2", type_2},
	{"window-extended", extended},
	{"window-refused", refused},
	{"window-owners", owners},
	{"device-copies", device_copies},
	{"device-transfers", device_transfers},
	{"device-windows", device_windows},
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof(*scenarios));
}
