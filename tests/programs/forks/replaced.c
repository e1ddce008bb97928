/* A program that has descriptors of its own at the numbers of a device's while a peer sends to it, one of which a
 * thread has a table of its own, and one whose handlers of fork open and close devices. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "forks.h"

enum { LENGTH = 64, MESSAGES = 5, MAX_FDS = 128, MAX_OTHERS = 8, HIGH = 700 };

static const char WAITING[] = "0123456789";

/* What the two processes tell each other. */
struct shared {
	struct address addresses[2];
	volatile int steps[2];
};

static void reach(struct shared *shared, int end, int step)
{
	shared->steps[end] = step;
	while (shared->steps[!end] < step)
		usleep(1000);
}

/* Makes one end of a connection, with receives. */
static struct ibv_qp *connect_end(struct shared *shared, int end, struct endpoint *endpoint)
{
	open_endpoint(endpoint, 3 * 4096, 64);
	struct ibv_qp *qp = make_qp(endpoint, 16);
	shared->addresses[end] = address_of(endpoint, qp);
	reach(shared, end, 1);
	const struct address *other = &shared->addresses[!end];
	connect_qp_with(qp, endpoint, &other->gid, other->qpn, 12, 7);
	for (int i = 0; i < MESSAGES; i++)
		CHECK_EQ(post_recv(qp, endpoint, 4096, LENGTH, 1), 0);
	reach(shared, end, 2);
	return qp;
}

/* Sends, whatever becomes of it. */
static void send_to_other(struct shared *shared)
{
	struct endpoint endpoint;
	struct ibv_qp *qp = connect_end(shared, 1, &endpoint);
	reach(shared, 1, 3);
	for (int i = 0; i < MESSAGES; i++) {
		CHECK_EQ(post_send(qp, &endpoint, 0, LENGTH, 1), 0);
		usleep(50000);
	}
	reach(shared, 1, 4);
	_exit(0);
}

/* Sockets of the program's own at the numbers of all that are open, with bytes in them. */
struct own {
	int number, peer;
};

static int replace_all(struct own *own)
{
	int count = 0;
	for (int fd = 3; fd < HIGH; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			continue;
		int ends[2];
		CHECK(count < MAX_FDS);
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
		own[count] = (struct own){fd, fcntl(ends[1], F_DUPFD, HIGH)};
		CHECK(own[count].peer >= 0);
		CHECK_EQ(send(own[count].peer, WAITING, sizeof WAITING, 0), sizeof WAITING);
		int high = fcntl(ends[0], F_DUPFD, HIGH);
		CHECK(high >= 0);
		close(ends[0]);
		close(ends[1]);
		CHECK_EQ(dup2(high, fd), fd);
		close(high);
		count++;
	}
	return count;
}

void replaced_descriptors(void)
{
	struct shared *shared =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		limit_time(60);
		send_to_other(shared);
	}
	struct endpoint endpoint;
	struct own own[MAX_FDS];
	connect_end(shared, 0, &endpoint);
	CHECK_EQ(ibv_req_notify_cq(endpoint.cq, 0), 0);
	wait_for_others();
	int count = replace_all(own);
	CHECK(count > 3);
	int before = threads();
	reach(shared, 0, 3);
	reach(shared, 0, 4);
	/* The messages have woken the thread of the device, which finds that its descriptors are gone, and ends. */
	for (int i = 0; threads() == before; i++) {
		CHECK(i < 10000);
		usleep(1000);
	}
	for (int i = 0; i < count; i++) {
		char bytes[2 * sizeof WAITING];
		CHECK_EQ(recv(own[i].peer, bytes, sizeof bytes, MSG_DONTWAIT), -1);
		CHECK_EQ(recv(own[i].number, bytes, sizeof bytes, MSG_DONTWAIT), sizeof WAITING);
	}
	expect_success_of(child);
}

/* Sockets of a thread that has the table of before, from the first free number on. */
static int others[MAX_OTHERS][2];
static pthread_barrier_t barrier;

static void *open_others(void *nothing)
{
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < MAX_OTHERS; i++)
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, others[i]), 0);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < MAX_OTHERS; i++) {
		char byte;
		CHECK_EQ(recv(others[i][0], &byte, 1, MSG_DONTWAIT), -1);
		CHECK_EQ(recv(others[i][1], &byte, 1, MSG_DONTWAIT), -1);
	}
	return nothing;
}

/* Events of a channel that only this thread's table has are lost, and go to no file of another thread. */
void unshared_descriptors(void)
{
	struct endpoint endpoint;
	pthread_t thread;
	CHECK_EQ(pthread_barrier_init(&barrier, NULL, 2), 0);
	open_endpoint(&endpoint, 3 * 4096, 64);
	CHECK_EQ(pthread_create(&thread, NULL, open_others, NULL), 0);
	CHECK_EQ(unshare(CLONE_FILES), 0);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(endpoint.context);
	CHECK(channel);
	CHECK(others[0][0] <= channel->fd && channel->fd <= others[MAX_OTHERS - 1][1]);
	endpoint.cq = ibv_create_cq(endpoint.context, 64, NULL, channel, 0);
	CHECK(endpoint.cq);
	struct connection pair = connect_to_self(&endpoint, 4);
	CHECK_EQ(post_recv(pair.right, &endpoint, 4096, LENGTH, 1), 0);
	CHECK_EQ(ibv_req_notify_cq(endpoint.cq, 0), 0);
	CHECK_EQ(post_send(pair.left, &endpoint, 0, LENGTH, 1), 0);
	/* The thread of the device completes it: this one calls nothing meanwhile. */
	wait_for_others();
	struct ibv_wc completion;
	CHECK_EQ(ibv_poll_cq(endpoint.cq, 1, &completion), 1);
	pthread_barrier_wait(&barrier);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

static struct endpoint of_handlers;
static struct connection between;

static void before(void)
{
	disconnect(&between);
	close_endpoint(&of_handlers);
}

static void after(void)
{
	open_endpoint(&of_handlers, 3 * 4096, 64);
	between = connect_to_self(&of_handlers, 16);
}

/* The way to use devices around a fork: they are closed before, and opened again by parent and child. */
void handlers_of_fork(void)
{
	/* Before the library has been asked for anything. */
	CHECK_EQ(pthread_atfork(before, after, after), 0);
	after();
	for (int i = 0; i < 3; i++) {
		unsigned long long began = now();
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			transfer(&of_handlers, &between, 64, 1);
			_exit(0);
		}
		/* A busy machine; with waits for one another it takes half a minute. */
		CHECK(now() - began < 5000000000ull);
		transfer(&of_handlers, &between, 64, 1);
		expect_success_of(child);
	}
	before();
}
