/* Messages go on where the process can have no memory or no descriptor any more. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "exhausted.h"

/* Messages to the same host are copied: these are more bytes than the library has in reserve. */
enum { LENGTH = 20000, MESSAGES = 2000 };

static struct endpoint endpoint;
static struct connection connection;
static struct ibv_qp *fresh;
static atomic_bool is_used_up;

/* Takes all memory that there is. */
static void use_up_memory(void)
{
	limit_address_space(1 << 20);
	for (size_t size = 1 << 20; size >= 16; size /= 2)
		while (malloc(size))
			;
}

/* A thread that has not called the library before. */
static void *use_the_device(void *unused)
{
	while (!is_used_up)
		sched_yield();
	CHECK_EQ(to_rtr(fresh, &endpoint, &endpoint.gid, connection.left->qp_num), 0);
	for (int i = 0; i < MESSAGES; i++)
		transfer(&endpoint, &connection, LENGTH, i);
	return unused;
}

void traffic_without_memory(void)
{
	int child = fork();
	if (child) {
		expect_success_of(child);
		return;
	}
	open_endpoint(&endpoint, 3 * LENGTH, 64);
	connection = connect_to_self(&endpoint, 16);
	fresh = make_qp(&endpoint, 16);
	CHECK_EQ(to_init(fresh), 0);
	transfer(&endpoint, &connection, LENGTH, 0);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, use_the_device, NULL), 0);
	use_up_memory();
	is_used_up = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	_exit(0);
}

static double processor_seconds(void)
{
	struct timespec time;
	CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time), 0);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* As in a sandbox: the process opens no descriptor any more. */
void traffic_without_descriptors(void)
{
	int child = fork();
	if (child) {
		expect_success_of(child);
		return;
	}
	open_endpoint(&endpoint, 3 * LENGTH, 64);
	connection = connect_to_self(&endpoint, 16);
	transfer(&endpoint, &connection, LENGTH, 0);
	struct rlimit none = {0, 0};
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	transfer(&endpoint, &connection, LENGTH, 1);
	double before = processor_seconds();
	sleep(1);
	/* The library's threads look a thousand times a second, and not all the time. */
	CHECK(processor_seconds() - before < 0.5);
	transfer(&endpoint, &connection, LENGTH, 2);
	_exit(0);
}
