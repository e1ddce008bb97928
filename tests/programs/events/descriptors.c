/* The descriptors of events, and the calls that wait on them, beside signals: as those of the kernel. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "events.h"
#include "rdma_cm.h"

enum { LENGTH = 64 };

static atomic_int ticks, interrupts, announced;

static void on_tick(int signal)
{
	(void)signal;
	ticks++;
}

static void on_interrupt(int signal)
{
	(void)signal;
	interrupts++;
}

static void on_io(int signal)
{
	(void)signal;
	announced++;
}

static void check_readiness(int fd, int expected)
{
	struct pollfd set = {.fd = fd, .events = POLLIN | POLLOUT};
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT}, found = {0};
	struct timeval at_once = {0};
	fd_set readable, writable;
	int epoll = epoll_create1(0);
	CHECK(poll(&set, 1, 0) >= 0);
	CHECK_EQ(set.revents, expected);
	FD_ZERO(&readable);
	FD_ZERO(&writable);
	FD_SET(fd, &readable);
	FD_SET(fd, &writable);
	CHECK_EQ(select(fd + 1, &readable, &writable, NULL, &at_once), !!expected);
	CHECK_EQ(!!FD_ISSET(fd, &readable), !!expected);
	CHECK_EQ(!!FD_ISSET(fd, &writable), 0);
	CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
	CHECK_EQ(epoll_wait(epoll, &found, 1, 0), !!expected);
	CHECK_EQ(found.events, expected);
	CHECK_EQ(close(epoll), 0);
}

/* Causes an event of the channel, by a request that is flushed. */
static void report(struct endpoint *endpoint)
{
	struct ibv_qp *qp = make_qp(endpoint, 4);
	CHECK_EQ(to_init(qp), 0);
	CHECK_EQ(ibv_req_notify_cq(endpoint->cq, 0), 0);
	CHECK_EQ(post_recv(qp, endpoint, 0, LENGTH, 1), 0);
	to_error(qp);
	while (next_completion(endpoint->cq).status != IBV_WC_WR_FLUSH_ERR)
		;
	CHECK_EQ(ibv_destroy_qp(qp), 0);
}

/* Causes an asynchronous event, of a queue pair that stays. */
static struct connection raise_event(struct endpoint *endpoint)
{
	struct connection connection = connect_to_self(endpoint, 4);
	struct ibv_recv_wr *bad;
	struct ibv_sge piece = {(uintptr_t)endpoint->buffer, LENGTH, endpoint->mr->lkey + 1};
	struct ibv_recv_wr wrong = {.sg_list = &piece, .num_sge = 1};
	CHECK_EQ(ibv_post_recv(connection.right, &wrong, &bad), 0);
	CHECK_EQ(post_rdma(connection.left, endpoint, IBV_WR_RDMA_WRITE, 0, LENGTH, 0,
			   endpoint->mr->rkey + 1, 7),
		 0);
	CHECK(next_completion(endpoint->cq).status != IBV_WC_SUCCESS);
	return connection;
}

static void announce(int fd)
{
	announced = 0;
	CHECK(signal(SIGIO, on_io) != SIG_ERR);
	CHECK_EQ(fcntl(fd, F_SETOWN, getpid()), 0);
	CHECK_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC), 0);
}

static void expect_announced(void)
{
	for (int i = 0; i < 500 && !announced; i++)
		usleep(10000);
	CHECK(announced > 0);
}

/* Both descriptors are readable while an event waits, never writable, and announce events by SIGIO. */
void descriptors_as_those_of_the_kernel(void)
{
	struct endpoint endpoint;
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;
	char bytes[64];
	open_endpoint(&endpoint, 4096, 16);
	int fd = endpoint.channel->fd, async = endpoint.context->async_fd;
	check_readiness(fd, 0);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	CHECK_MINUS_ONE(write(fd, "x", 1), EBADF);
	announce(fd);
	report(&endpoint);
	expect_announced();
	check_readiness(fd, POLLIN);
	/* Also by another descriptor, which is the same file. */
	int copy = dup(fd);
	check_readiness(copy, POLLIN);
	CHECK_EQ(ibv_get_cq_event(endpoint.channel, &cq, &context), 0);
	check_readiness(copy, 0);
	CHECK_EQ(close(copy), 0);
	check_readiness(fd, 0);

	/* The program reads the descriptor itself. No call blocks of it, and the event is there. */
	report(&endpoint);
	CHECK(read(fd, bytes, sizeof bytes) > 0);
	CHECK_EQ(ibv_get_cq_event(endpoint.channel, &cq, &context), 0);
	report(&endpoint);
	check_readiness(fd, POLLIN);
	CHECK_EQ(ibv_get_cq_event(endpoint.channel, &cq, &context), 0);
	ibv_ack_cq_events(endpoint.cq, 3);
	make_non_blocking(fd);
	CHECK_MINUS_ONE(ibv_get_cq_event(endpoint.channel, &cq, &context), EAGAIN);

	make_non_blocking(async);
	while (ibv_get_async_event(endpoint.context, &event) == 0)
		ibv_ack_async_event(&event);
	check_readiness(async, 0);
	announce(async);
	struct connection connection = raise_event(&endpoint);
	expect_announced();
	check_readiness(async, POLLIN);
	while (ibv_get_async_event(endpoint.context, &event) == 0)
		ibv_ack_async_event(&event);
	check_readiness(async, 0);
	disconnect(&connection);
	close_endpoint(&endpoint);
}

/* Calls that wait, and what ends them. */

static struct endpoint waited_on;
static int rdma_cm;
static int identifier;

static int wait_for_completion_event(void)
{
	struct ibv_cq *cq;
	void *context;
	int result = ibv_get_cq_event(waited_on.channel, &cq, &context);
	if (result == 0)
		ibv_ack_cq_events(cq, 1);
	return result;
}

static int wait_for_asynchronous_event(void)
{
	struct ibv_async_event event;
	int result = get_object_event(waited_on.context, &event);
	if (result == 0)
		ibv_ack_async_event(&event);
	return result;
}

static int wait_for_rdma_cm_event(void)
{
	struct rdma_ucm_event_resp event;
	struct rdma_ucm_get_event get = {.response = (uintptr_t)&event};
	return COMMAND(rdma_cm, RDMA_USER_CM_CMD_GET_EVENT, get, sizeof event) > 0 ? 0 : -1;
}

static void cause_completion_event(void)
{
	report(&waited_on);
}

static void cause_asynchronous_event(void)
{
	raise_event(&waited_on);
}

static void cause_rdma_cm_event(void)
{
	struct write_cm_event raised = {.id = identifier, .event = 1};
	CHECK(COMMAND(rdma_cm, WRITE_CM_EVENT, raised, 0) > 0);
}

static const struct wait {
	int (*wait)(void);
	void (*cause)(void);
} waits[] = {
	{wait_for_completion_event, cause_completion_event},
	{wait_for_asynchronous_event, cause_asynchronous_event},
	{wait_for_rdma_cm_event, cause_rdma_cm_event},
};

static atomic_int outcome;

static void *wait_once(void *argument)
{
	const struct wait *wait = argument;
	outcome = wait->wait() == 0 ? 0 : errno;
	return NULL;
}

/* Sends a signal to a thread, and to no other, so many times, and gives it time to sleep before each. */
static void send_to(pthread_t thread, int signal, int times)
{
	for (int i = 0; i < times; i++) {
		usleep(20000);
		CHECK_EQ(pthread_kill(thread, signal), 0);
	}
}

/* Waits until a handler has run, and a while longer. */
static void wait_for_handler(const atomic_int *count, int expected)
{
	for (int i = 0; i < 500 && *count < expected; i++)
		usleep(10000);
	CHECK_EQ(*count, expected);
	usleep(20000);
}

static void install(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	CHECK_EQ(sigaction(signal, &action, NULL), 0);
}

/* A wait goes on after a handler with SA_RESTART, and ends after one without, whichever others there are. */
void signals_of_which_some_restart_calls(void)
{
	struct rdma_ucm_create_id_resp response = {0};
	struct rdma_ucm_create_id create = {
		.uid = 1, .response = (uintptr_t)&response, .ps = RDMA_PS_TCP};
	open_endpoint(&waited_on, 4096, 16);
	rdma_cm = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	CHECK(rdma_cm >= 0);
	CHECK(COMMAND(rdma_cm, RDMA_USER_CM_CMD_CREATE_ID, create, sizeof response) > 0);
	identifier = response.id;
	install(SIGUSR1, on_tick, SA_RESTART);
	install(SIGINT, on_interrupt, 0);
	for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
		pthread_t thread;
		ticks = interrupts = 0;
		outcome = -1;
		CHECK_EQ(pthread_create(&thread, NULL, wait_once, (void *)&waits[i]), 0);
		send_to(thread, SIGUSR1, 10);
		wait_for_handler(&ticks, 10);
		CHECK_EQ(outcome, -1);
		waits[i].cause();
		CHECK_EQ(pthread_join(thread, NULL), 0);
		CHECK_EQ(outcome, 0);

		outcome = -1;
		CHECK_EQ(pthread_create(&thread, NULL, wait_once, (void *)&waits[i]), 0);
		send_to(thread, SIGUSR1, 3);
		send_to(thread, SIGINT, 1);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		CHECK_EQ(outcome, EINTR);
	}
	CHECK_EQ(close(rdma_cm), 0);
	/* The connection of the asynchronous event is left to the end of the process. */
}
