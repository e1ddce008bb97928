/* Memory runs out: calls fail with ENOMEM or succeed, never end the process, and leave nothing behind. */
#include "check.h"
#include "exhausted.h"

static const struct scenario scenarios[] = {
	{"objects", failing_allocations},
	{"creations-without-memory", creations_without_memory},
	{"used-up-memory", used_up_memory},
	{"devices", devices_without_address_space},
	{"exit-and-open", exit_with_device_of_handler},
	{"exit", exit_without_allocator},
	{"last-thread", exit_with_the_last_thread},
	{"traffic-without-memory", traffic_without_memory},
	{"traffic-without-descriptors", traffic_without_descriptors},
	{"identifiers", failing_allocations_of_identifiers},
};

int main(int argc, char **argv)
{
	return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}
