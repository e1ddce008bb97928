/* What a program does after its last close, and what other processes find after a parent has ended. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "forks.h"

void own_device(void)
{
	use_own_device(1);
}

static void close_everything(void)
{
	for (int fd = 3; fd < 1100; fd++)
		close(fd);
}

/* As daemons do: all descriptors are closed, and files of the program's own get their numbers. */
void closed_descriptors(void)
{
	for (int round = 0; round < 3; round++) {
		use_own_device(round);
		close_everything();
		open_own();
		/* As long as anything of the library lived on. */
		usleep(round == 0 ? 2500000 : 10000);
		check_own();
		use_own_device(round);
		check_own();
		close_own();
	}
}

/* The same with an open device, which the program closes afterwards. */
void closed_while_open(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	close_everything();
	open_own();
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	ibv_close_device(context);
	check_own();
	use_own_device(7);
	check_own();
}

/* Returns true if no thread but the calling one runs or waits for a processor. */
static bool others_sleep(void)
{
	DIR *tasks = opendir("/proc/self/task");
	CHECK(tasks);
	int awake = 0;
	for (struct dirent *entry; (entry = readdir(tasks));) {
		char path[300], state = 'S';
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
		FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		/* The name may hold anything but ends with the last parenthesis. */
		char line[512], *end = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
		if (end)
			state = end[2];
		if (file)
			fclose(file);
		awake += state != 'S';
	}
	CHECK_EQ(closedir(tasks), 0);
	return awake <= 1;
}

void wait_for_others(void)
{
	for (int looks = 0, i = 0; looks < 10; i++) {
		CHECK(i < 2000);
		usleep(10000);
		looks = others_sleep() ? looks + 1 : 0;
	}
}

/* A process that opens a device, closes all descriptors and gives their numbers to a connection of its own. */
static void end_with_connection(int connection)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 16);
	struct connection pair = connect_to_self(&endpoint, 4);
	transfer(&endpoint, &pair, 64, 1);
	CHECK_EQ(ibv_req_notify_cq(endpoint.cq, 0), 0);
	wait_for_others();
	bool was_open[64];
	for (int fd = 3; fd < 64; fd++) {
		was_open[fd] = fd != connection && fcntl(fd, F_GETFD) >= 0;
		if (was_open[fd])
			close(fd);
	}
	for (int fd = 3; fd < 64; fd++)
		if (was_open[fd])
			CHECK_EQ(dup2(connection, fd), fd);
	exit(0);
}

/* What runs at the end of such a process writes nothing to the connection. */
void exit_when_closed(void)
{
	for (int round = 0; round < 3; round++) {
		int ends[2];
		char bytes[64];
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			limit_time(60);
			close(ends[0]);
			end_with_connection(ends[1]);
		}
		CHECK_EQ(close(ends[1]), 0);
		CHECK_EQ(read(ends[0], bytes, sizeof bytes), 0);
		expect_success_of(child);
		CHECK_EQ(close(ends[0]), 0);
	}
}

/* Nothing can tell the thread that would ask the kernel for the path. A device that is opened from now on is a
 * new one, although the old is still open, as librdmacm leaves it. */
void path_when_closed(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 8);
	struct ibv_qp *qp = make_qp(&endpoint, 1);
	union ibv_gid other = endpoint.gid;
	other.raw[15] ^= 2;
	CHECK_EQ(to_init(qp), 0);
	close_everything();
	open_own();
	CHECK(to_rtr(qp, &endpoint, &other, 17) != 0);
	use_own_device(7);
	check_own();
}

/* A process of one thread is one again when it has closed its devices, and may have a user namespace. */
void one_thread(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(unshare(CLONE_NEWUSER) != 0);
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(threads(), 1);
	use_own_device(1);
	CHECK_EQ(threads(), 1);
	/* Where no process may, this one may not. */
	if (status == 0)
		CHECK_EQ(unshare(CLONE_NEWUSER), 0);
}

/* Connects to a port of the address OWN_ADDRESS. Returns the event, or -1 after ten seconds. */
static int connect_to(int port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	const char *address = getenv("OWN_ADDRESS");
	CHECK(channel && address);
	CHECK_EQ(inet_pton(AF_INET, address, &to.sin_addr), 1);
	CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000), 0);
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	CHECK_EQ(rdma_resolve_route(id, 2000), 0);
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 4, .max_recv_wr = 4,
						.max_send_sge = 1, .max_recv_sge = 1}};
	CHECK_EQ(rdma_create_qp(id, NULL, &init), 0);
	struct rdma_conn_param parameters = {.retry_count = 7};
	CHECK_EQ(rdma_connect(id, &parameters), 0);
	struct pollfd readable = {.fd = channel->fd, .events = POLLIN};
	if (poll(&readable, 1, 10000) != 1)
		return -1;
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	int kind = event->event;
	rdma_ack_cm_event(event);
	return kind;
}

/* A process that answers requests to closed ports ends, and a child that it has forked lives on: another
 * process answers. */
void stray(void)
{
	int hold[2];
	CHECK_EQ(pipe(hold), 0);
	pid_t parent = fork();
	CHECK(parent >= 0);
	if (parent == 0) {
		CHECK_EQ(connect_to(9998), RDMA_CM_EVENT_REJECTED);
		if (fork() == 0) {
			char byte;
			close(hold[1]);
			_exit(read(hold[0], &byte, 1) != 0);
		}
		_exit(0);
	}
	expect_success_of(parent);
	pid_t other = fork();
	CHECK(other >= 0);
	if (other == 0) {
		limit_time(60);
		CHECK_EQ(connect_to(9999), RDMA_CM_EVENT_REJECTED);
		_exit(0);
	}
	expect_success_of(other);
}

static void become_another(void)
{
	CHECK_EQ(setgroups(0, NULL), 0);
	CHECK_EQ(setgid(65534), 0);
	CHECK_EQ(setuid(65534), 0);
}

/* A process that locks all memory that it maps, beyond what its user may lock. */
void locked_memory(void)
{
	struct rlimit limit = {8 << 20, 8 << 20};
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	become_another();
	/* The memory of the region is mapped before. */
	CHECK_EQ(mlockall(MCL_FUTURE), 0);
	struct ibv_context *context = open_device();
	CHECK_EQ(ibv_close_device(context), 0);
	use_own_device(1);
}

/* Accepts one connection, and waits for its end. */
static void serve(int port, int ready)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	CHECK(channel);
	CHECK_EQ(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(listener, (struct sockaddr *)&address), 0);
	CHECK_EQ(rdma_listen(listener, 1), 0);
	CHECK_EQ(write(ready, "r", 1), 1);
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	CHECK_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 4, .max_recv_wr = 4,
						.max_send_sge = 1, .max_recv_sge = 1}};
	CHECK_EQ(rdma_create_qp(id, NULL, &init), 0);
	struct rdma_conn_param parameters = {.retry_count = 7};
	CHECK_EQ(rdma_accept(id, &parameters), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	CHECK_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
}

/* As daemons do: a process of root's gives up its user before it opens a device. It reaches one that has not,
 * from both ends. */
void other_user(void)
{
	for (int server = 0; server < 2; server++) {
		int ready[2];
		char byte;
		CHECK_EQ(pipe(ready), 0);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			limit_time(60);
			if (server == 0)
				become_another();
			serve(7475 + server, ready[1]);
			_exit(0);
		}
		CHECK_EQ(read(ready[0], &byte, 1), 1);
		pid_t client = fork();
		CHECK(client >= 0);
		if (client == 0) {
			limit_time(60);
			if (server == 1)
				become_another();
			CHECK_EQ(connect_to(7475 + server), RDMA_CM_EVENT_ESTABLISHED);
			/* With a device of its own, too. */
			use_own_device(3);
			_exit(0);
		}
		expect_success_of(client);
		expect_success_of(child);
	}
}
