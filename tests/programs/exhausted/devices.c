/* Address space runs out while a program opens a device, uses it and closes it. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exhausted.h"
#include "check.h"
#include "endpoint.h"

#define MAX_ADDRESS_SPACE (48UL << 20)
#define ADDRESS_SPACE_STEP (1UL << 20)
/* Exit code of a child that could not do all. */
#define REFUSED 9

/* A thread that cannot be made is refused with EAGAIN. */
static bool is_open(const struct ibv_context *context)
{
	if (!context)
		CHECK(errno == ENOMEM || errno == EAGAIN);
	return context;
}

/* Opens a device, makes one of everything on it and exchanges messages, as far as there is memory, and closes it.
 * Returns true if nothing failed. */
static bool use_device(struct ibv_device *device, const struct endpoint *known)
{
	struct ibv_context *context = ibv_open_device(device);
	if (!is_open(context))
		return false;
	struct objects made;
	bool is_whole = make_objects(&made, context, known);
	struct endpoint endpoint = *known;
	endpoint.context = context;
	is_whole = is_whole && exchange(&made, &endpoint) == 0;
	destroy_objects(&made);
	CHECK_EQ(ibv_close_device(context), 0);
	return is_whole;
}

/* Learns the device's address in a child: the caller opens no device, and has nothing of one that it could use
 * again. */
static struct endpoint learn_endpoint(void)
{
	struct endpoint known;
	int ends[2];
	CHECK_EQ(pipe(ends), 0);
	int child = fork();
	if (!child) {
		open_endpoint(&known, 4096, 16);
		CHECK_EQ(write(ends[1], &known, sizeof(known)), sizeof(known));
		_exit(0);
	}
	expect_success_of(child);
	CHECK_EQ(read(ends[0], &known, sizeof(known)), sizeof(known));
	close(ends[0]);
	close(ends[1]);
	return known;
}

/* In a process of its own for each amount of address space, which ends as it does where a process runs out of memory.
 * Allocations that fail one by one would end the process: std makes its threads from the system's allocator. */
void devices_without_address_space(void)
{
	struct endpoint known = learn_endpoint();
	int was_refused = 0;
	for (size_t more = 0; more < MAX_ADDRESS_SPACE; more += ADDRESS_SPACE_STEP) {
		limit_time(60);
		int child = fork();
		if (child) {
			int status;
			CHECK_EQ(waitpid(child, &status, 0), child);
			CHECK(WIFEXITED(status));
			bool is_refused = WEXITSTATUS(status) == REFUSED;
			CHECK(is_refused || !WEXITSTATUS(status));
			was_refused += is_refused;
			/* The last one has enough. */
			CHECK(more + ADDRESS_SPACE_STEP < MAX_ADDRESS_SPACE || !is_refused);
			continue;
		}
		limit_time(60); /* a child inherits no timer */
		struct ibv_device **list = ibv_get_device_list(NULL);
		CHECK(list && list[0]);
		limit_address_space(more);
		bool is_whole = use_device(list[0], &known);
		limit_address_space(RLIM_INFINITY);
		CHECK(use_device(list[0], &known));
		ibv_free_device_list(list);
		_exit(is_whole ? 0 : REFUSED);
	}
	CHECK(was_refused > 3);
}
