/* The device of librdmacm, /dev/infiniband/rdma_cm, by its commands. */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/netlink.h>

#include "check.h"
#include "rdma_cm.h"

static const char DEVICE[] = "/dev/infiniband/rdma_cm";

static int open_channel(int flags)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC | flags);
	CHECK(fd >= 0);
	return fd;
}

static int create_id(int fd, uint64_t uid)
{
	struct rdma_ucm_create_id_resp response = {.id = 77};
	struct rdma_ucm_create_id create = {
		.uid = uid, .response = (uintptr_t)&response, .ps = RDMA_PS_TCP};
	CHECK_EQ(COMMAND(fd, RDMA_USER_CM_CMD_CREATE_ID, create, sizeof response), 8 + sizeof create);
	return response.id;
}

/* Returns the number of events that were fetched. */
static int destroy_id(int fd, int id)
{
	struct rdma_ucm_destroy_id_resp response = {.events_reported = 77};
	struct rdma_ucm_destroy_id destroy = {.response = (uintptr_t)&response, .id = id};
	CHECK_EQ(COMMAND(fd, RDMA_USER_CM_CMD_DESTROY_ID, destroy, sizeof response),
		 8 + sizeof destroy);
	return response.events_reported;
}

static void raise_event(int fd, int id, uint32_t event, uint64_t argument)
{
	struct write_cm_event raised = {.id = id, .event = event, .argument = argument};
	CHECK_EQ(COMMAND(fd, WRITE_CM_EVENT, raised, 0), 8 + sizeof raised);
}

static ssize_t next_event(int fd, struct rdma_ucm_event_resp *event)
{
	struct rdma_ucm_get_event get = {.response = (uintptr_t)event};
	return COMMAND(fd, RDMA_USER_CM_CMD_GET_EVENT, get, sizeof *event);
}

static void expect_event(int fd, int id, uint64_t uid, uint32_t number, uint64_t argument)
{
	struct rdma_ucm_event_resp event;
	uint64_t carried;
	memset(&event, 0xff, sizeof event);
	CHECK_EQ(next_event(fd, &event), 16);
	memcpy(&carried, &event.param, sizeof carried);
	CHECK_EQ(event.id, id);
	CHECK_EQ(event.uid, uid);
	CHECK_EQ(event.event, number);
	CHECK_EQ(carried, argument);
}

static int readiness(int fd)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT};
	CHECK(poll(&entry, 1, 0) >= 0);
	return entry.revents;
}

/* A channel looks like the kernel's device. */
static void appearance(void)
{
	struct rdma_ucm_event_resp event;
	struct stat status;
	int fd = open_channel(O_NONBLOCK);
	CHECK_EQ(fstat(fd, &status), 0);
	CHECK(S_ISCHR(status.st_mode));
	CHECK_EQ(readiness(fd), 0);
	CHECK_MINUS_ONE(next_event(fd, &event), EAGAIN);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	CHECK_EQ(close(fd), 0);
	CHECK_MINUS_ONE(fcntl(fd, F_GETFD), EBADF);

	fd = openat(AT_FDCWD, DEVICE, O_RDWR);
	CHECK(fd >= 0);
	CHECK_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	CHECK_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
	CHECK_MINUS_ONE(next_event(fd, &event), EAGAIN);
	CHECK_EQ(close(fd), 0);
	/* librdmacm would ask the kernel for the numbers of its own device. */
	CHECK_MINUS_ONE(socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA), EPROTONOSUPPORT);
	CHECK((fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)) >= 0);
	CHECK_EQ(close(fd), 0);
}

/* What is no command is refused, and has no effect. */
static void refusals(void)
{
	int fd = open_channel(O_NONBLOCK);
	struct rdma_ucm_destroy_id_resp response;
	struct rdma_ucm_destroy_id destroy = {.response = (uintptr_t)&response, .id = 5};
	CHECK_MINUS_ONE(write(fd, "", 0), EINVAL);
	CHECK_MINUS_ONE(write(fd, "1234567", 7), EINVAL);
	CHECK_MINUS_ONE(write(fd, *(void *volatile *)&(void *){NULL}, 8), EFAULT);
	CHECK_MINUS_ONE(command(fd, 25, "", 0, 0), EINVAL);
	CHECK_MINUS_ONE(COMMAND(fd, RDMA_USER_CM_CMD_DESTROY_ID, destroy, 3), ENOSPC);
	CHECK_MINUS_ONE(COMMAND(fd, RDMA_USER_CM_CMD_DESTROY_ID, destroy, 4), ENOENT);
	CHECK_MINUS_ONE(command(fd, RDMA_USER_CM_CMD_DESTROY_ID, &destroy, 15, 4), EINVAL);
	CHECK_MINUS_ONE(COMMAND(fd, RDMA_USER_CM_CMD_GET_OPTION, destroy, 4), ENOSYS);
	CHECK_EQ(close(fd), 0);
}

/* Identifiers belong to their channel, and end with it. */
static void identifiers(void)
{
	int fds[2] = {open_channel(0), open_channel(0)};
	struct rdma_ucm_destroy_id_resp response;
	struct rdma_ucm_destroy_id destroy = {.response = (uintptr_t)&response, .id = 1};
	CHECK_EQ(create_id(fds[0], 1), 0);
	CHECK_EQ(create_id(fds[1], 2), 1);
	CHECK_EQ(create_id(fds[0], 3), 2);
	CHECK_MINUS_ONE(COMMAND(fds[0], RDMA_USER_CM_CMD_DESTROY_ID, destroy, 4), ENOENT);
	CHECK_EQ(destroy_id(fds[0], 0), 0);
	CHECK_EQ(create_id(fds[1], 4), 0);
	CHECK_EQ(close(fds[1]), 0);
	CHECK_EQ(create_id(fds[0], 5), 0);
	CHECK_EQ(create_id(fds[0], 6), 1);
	CHECK_EQ(close(fds[0]), 0);
}

/* A channel is readable as long as an event waits. Destroying takes events away, and tells how many were
 * fetched. */
static void waiting_events(void)
{
	int fd = open_channel(O_NONBLOCK), first = create_id(fd, 10), second = create_id(fd, 20);
	struct rdma_ucm_event_resp event;
	raise_event(fd, first, 100, 7);
	CHECK_EQ(readiness(fd), POLLIN);
	raise_event(fd, second, 101, 8);
	expect_event(fd, first, 10, 100, 7);
	CHECK_EQ(readiness(fd), POLLIN);
	expect_event(fd, second, 20, 101, 8);
	CHECK_EQ(readiness(fd), 0);
	CHECK_MINUS_ONE(next_event(fd, &event), EAGAIN);

	for (int i = 0; i < 100; i++)
		raise_event(fd, i % 2 ? first : second, i, i);
	CHECK_EQ(destroy_id(fd, first), 1);
	for (int i = 0; i < 100; i += 2) {
		CHECK_EQ(readiness(fd), POLLIN);
		expect_event(fd, second, 20, i, i);
	}
	CHECK_EQ(readiness(fd), 0);
	raise_event(fd, second, 1, 1);
	CHECK_EQ(destroy_id(fd, second), 51);
	CHECK_EQ(readiness(fd), 0);
	CHECK_EQ(close(fd), 0);
}

/* An identifier takes its events along to another channel, in their order. */
static void migration(void)
{
	int from = open_channel(O_NONBLOCK), to = open_channel(O_NONBLOCK), id, other;
	struct rdma_ucm_migrate_resp response = {77};
	struct rdma_ucm_migrate_id migrate = {.response = (uintptr_t)&response, .fd = from};
	migrate.id = id = create_id(from, 10);
	other = create_id(from, 20);
	raise_event(from, id, 1, 1);
	expect_event(from, id, 10, 1, 1);
	for (int i = 0; i < 3; i++) {
		raise_event(from, id, 2 + i, i);
		raise_event(from, other, 2 + i, i);
	}
	CHECK_EQ(COMMAND(to, RDMA_USER_CM_CMD_MIGRATE_ID, migrate, 4), 8 + sizeof migrate);
	CHECK_EQ(response.events_reported, 1);
	/* librdmacm sends commands to the old channel until it knows that the call has returned; the kernel has
	 * ENOENT for them, and the program loses its requests. */
	CHECK_EQ(COMMAND(to, RDMA_USER_CM_CMD_MIGRATE_ID, migrate, 4), 8 + sizeof migrate);
	CHECK_EQ(response.events_reported, 1);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(readiness(from), POLLIN);
		CHECK_EQ(readiness(to), POLLIN);
		expect_event(from, other, 20, 2 + i, i);
		expect_event(to, id, 10, 2 + i, i);
	}
	CHECK_EQ(readiness(from), 0);
	CHECK_EQ(readiness(to), 0);
	CHECK_EQ(destroy_id(to, id), 4);
	migrate.fd = 0;
	migrate.id = other;
	CHECK_MINUS_ONE(COMMAND(to, RDMA_USER_CM_CMD_MIGRATE_ID, migrate, 4), EINVAL);
	CHECK_EQ(close(from), 0);
	CHECK_EQ(close(to), 0);
}

/* A number that the program gives to another file is that file's. */
static void replaced_numbers(void)
{
	int ends[2], fd = open_channel(0);
	struct stat status;
	char byte = 0;
	CHECK_EQ(create_id(fd, 1), 0);
	CHECK_EQ(pipe(ends), 0);
	CHECK_EQ(dup2(ends[1], fd), fd);
	CHECK_EQ(write(fd, "x", 1), 1);
	CHECK_EQ(read(ends[0], &byte, 1), 1);
	CHECK_EQ(byte, 'x');
	CHECK_EQ(fstat(fd, &status), 0);
	CHECK(S_ISFIFO(status.st_mode));
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(close(ends[1]), 0);
	CHECK_EQ(read(ends[0], &byte, 1), 0);
	CHECK_EQ(close(ends[0]), 0);
	/* The next channel releases what the closed one had. */
	fd = open_channel(0);
	CHECK_EQ(create_id(fd, 1), 0);
	CHECK_EQ(close(fd), 0);
}

/* A child has channels of its own, and leaves its parent's alone. */
static void children(void)
{
	int fd = open_channel(O_NONBLOCK), id = create_id(fd, 10), child;
	struct rdma_ucm_event_resp event;
	raise_event(fd, id, 1, 1);
	child = fork();
	if (child == 0) {
		CHECK_MINUS_ONE(next_event(fd, &event), EIO);
		CHECK_EQ(close(fd), 0);
		fd = open_channel(O_NONBLOCK);
		CHECK_EQ(create_id(fd, 30), 0);
		raise_event(fd, 0, 5, 5);
		expect_event(fd, 0, 30, 5, 5);
		_exit(0);
	}
	expect_success_of(child);
	child = vfork();
	if (child == 0) {
		/* It has the memory of its parent, which keeps its channels whatever this opens. */
		int refused = open(DEVICE, O_RDWR) == -1 && errno == ENODEV;
		close(fd);
		_exit(refused ? 0 : 1);
	}
	expect_success_of(child);
	expect_event(fd, id, 10, 1, 1);
	CHECK_EQ(close(fd), 0);
}

static int blocking;
static atomic_int started, cleaned, interrupted;

static void note_cleaned(void *argument)
{
	(void)argument;
	cleaned = 1;
}

static void *wait_for_event(void *argument)
{
	pthread_cleanup_push(note_cleaned, NULL);
	started = 1;
	expect_event(blocking, 0, 10, *(int *)argument, 9);
	pthread_cleanup_pop(0);
	return NULL;
}

/* A thread that waits is woken by an event, and may be cancelled. */
static void blocked_threads(void)
{
	pthread_t thread;
	void *result;
	int number = 3;
	blocking = open_channel(0);
	CHECK_EQ(create_id(blocking, 10), 0);
	for (int round = 0; round < 20; round++) {
		started = cleaned = 0;
		CHECK_EQ(pthread_create(&thread, NULL, wait_for_event, &number), 0);
		while (!started)
			usleep(100);
		usleep(round * 100);
		if (round % 2) {
			CHECK_EQ(pthread_cancel(thread), 0);
			CHECK_EQ(pthread_join(thread, &result), 0);
			CHECK(result == PTHREAD_CANCELED);
			CHECK_EQ(cleaned, 1);
		} else {
			raise_event(blocking, 0, number, 9);
			CHECK_EQ(pthread_join(thread, &result), 0);
			CHECK(result == NULL);
		}
	}
	CHECK_EQ(close(blocking), 0);
}

static void note_signal(int signal)
{
	(void)signal;
	interrupted++;
}

/* A signal ends the wait as it ends a read. */
static void signals(void)
{
	struct rdma_ucm_event_resp event;
	struct sigaction action = {.sa_handler = note_signal};
	int fd = open_channel(0);
	CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
	alarm(1);
	CHECK_MINUS_ONE(next_event(fd, &event), EINTR);
	CHECK_EQ(interrupted, 1);
	CHECK_EQ(close(fd), 0);
}

/* Calls of `write` on other files, of which one is cancelled. */
static void *fill(void *argument)
{
	static char bytes[65536];
	pthread_cleanup_push(note_cleaned, NULL);
	started = 1;
	for (;;)
		CHECK(write(*(int *)argument, bytes, sizeof bytes) > 0);
	pthread_cleanup_pop(0);
	return NULL;
}

static void other_files(void)
{
	pthread_t thread;
	void *result;
	int ends[2], channel = open_channel(0);
	CHECK_EQ(pipe(ends), 0);
	started = cleaned = 0;
	CHECK_EQ(pthread_create(&thread, NULL, fill, &ends[1]), 0);
	while (!started)
		usleep(1000);
	usleep(20000);
	CHECK_EQ(pthread_cancel(thread), 0);
	CHECK_EQ(pthread_join(thread, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	CHECK_EQ(cleaned, 1);
	CHECK_MINUS_ONE(write(-1, "", 1), EBADF);
	CHECK_MINUS_ONE(close(-1), EBADF);
	CHECK_MINUS_ONE(write(1 << 30, "", 1), EBADF);
	CHECK_EQ(close(ends[0]), 0);
	CHECK_EQ(close(ends[1]), 0);
	CHECK_EQ(close(channel), 0);
}

/* What a `write` to another file costs more: prints nanoseconds. */
static void cost(void)
{
	enum { CALLS = 2000000 };
	ssize_t (*direct)(int, const void *, size_t) =
		(ssize_t(*)(int, const void *, size_t))dlsym(dlopen("libc.so.6", RTLD_NOW), "write");
	unsigned long long best[2] = {~0ull, ~0ull};
	int channel = open_channel(0);
	CHECK(direct != NULL);
	for (int round = 0; round < 7; round++) {
		for (int way = 0; way < 2; way++) {
			unsigned long long begin = now(), took;
			for (int i = 0; i < CALLS / 10; i++) {
				/* Refused by the kernel at once. */
				if (way)
					(void)!write(-1, "", 0);
				else
					(void)!direct(-1, "", 0);
			}
			took = (now() - begin) * 1000 / (CALLS / 10);
			best[way] = took < best[way] ? took : best[way];
		}
	}
	printf("a write takes %.1f ns, %.1f ns through the preloaded library\n", best[0] / 1000.,
	       best[1] / 1000.);
	CHECK_EQ(close(channel), 0);
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{"appearance", appearance},
		{"refusals", refusals},
		{"identifiers", identifiers},
		{"waiting-events", waiting_events},
		{"migration", migration},
		{"replaced-numbers", replaced_numbers},
		{"children", children},
		{"blocked-threads", blocked_threads},
		{"signals", signals},
		{"other-files", other_files},
		{"cost", cost},
	};
	return run_scenario(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
