/* Handlers of atexit that wait for a last message. They are registered before the device is opened, as
 * the destructors of a program's static objects are, and so run after the library's own. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "events.h"

enum { LENGTH = 64 };

static struct endpoint endpoint;
static int to_peer;
static pthread_t thread;
static void (*last_wait)(void);
static bool is_in_exit;
/* The queue pair stays in RTR, where the first message causes an event. */
static bool stays_in_rtr;

/* A datagram of UDP sockets to another process of this host may be on its way through the one that ends, and is
 * lost with it. If it is the ACK of the last message, the sender waits for it in vain. */
static bool end_may_take_an_ack_with_it(void)
{
	const char *backend = getenv("ROCE_BACKEND");
	return backend && strcmp(backend, "udp") == 0;
}

/* Sends after the other process has come to its handler. */
static void send_when_asked(int socket)
{
	struct endpoint own;
	struct address mine, peer;
	char asked;
	open_endpoint(&own, 4096, 16);
	struct ibv_qp *qp = make_qp(&own, 4);
	mine = address_of(&own, qp);
	CHECK_EQ(write(socket, &mine, sizeof(mine)), sizeof(mine));
	CHECK_EQ(read(socket, &peer, sizeof(peer)), sizeof(peer));
	connect_qp(qp, &own, &peer.gid, peer.qpn);
	CHECK_EQ(write(socket, "r", 1), 1);
	CHECK_EQ(read(socket, &asked, 1), 1);
	/* The other process sleeps by now, and nothing but the message wakes it. */
	usleep(100000);
	CHECK_EQ(post_send(qp, &own, 0, LENGTH, 1), 0);
	enum ibv_wc_status status = next_completion(own.cq).status;
	if (status != IBV_WC_RETRY_EXC_ERR || !end_may_take_an_ack_with_it())
		CHECK_EQ(status, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_endpoint(&own);
}

static void wait_in_handler(void)
{
	if (!is_in_exit)
		return;
	CHECK_EQ(write(to_peer, "g", 1), 1);
	last_wait();
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	/* Tells the other process of the test. */
	_exit(0);
}

static void prepare_nothing(void)
{
}

/* Ends a process whose handler waits for a message, and checks that both ends see it. */
static void run_in_exit(void (*prepare)(void), void (*wait)(void))
{
	int sockets[2];
	struct address mine, peer;
	char ready;
	fflush(stdout);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	pid_t sender = fork();
	if (sender == 0) {
		limit_time(30);
		send_when_asked(sockets[1]);
		_exit(0);
	}
	pid_t receiver = fork();
	if (receiver == 0) {
		limit_time(30);
		last_wait = wait;
		to_peer = sockets[0];
		CHECK_EQ(atexit(wait_in_handler), 0);
		open_endpoint(&endpoint, 4096, 16);
		struct ibv_qp *qp = make_qp(&endpoint, 4);
		mine = address_of(&endpoint, qp);
		CHECK_EQ(write(to_peer, &mine, sizeof(mine)), sizeof(mine));
		CHECK_EQ(read(to_peer, &peer, sizeof(peer)), sizeof(peer));
		CHECK_EQ(to_init(qp), 0);
		CHECK_EQ(to_rtr(qp, &endpoint, &peer.gid, peer.qpn), 0);
		if (!stays_in_rtr)
			CHECK_EQ(to_rts(qp, 16, 7), 0);
		CHECK_EQ(read(to_peer, &ready, 1), 1);
		CHECK_EQ(post_recv(qp, &endpoint, 0, LENGTH, 1), 0);
		CHECK_EQ(ibv_req_notify_cq(endpoint.cq, 0), 0);
		prepare();
		is_in_exit = true;
		exit(1);
	}
	expect_success_of(receiver);
	expect_success_of(sender);
}

static void *get_event(void *unused)
{
	struct ibv_cq *cq;
	void *context;
	(void)unused;
	CHECK_EQ(ibv_get_cq_event(endpoint.channel, &cq, &context), 0);
	CHECK(cq == endpoint.cq);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void wait_here(void)
{
	get_event(NULL);
}

void exit_then_wait(void)
{
	run_in_exit(prepare_nothing, wait_here);
}

static void start_thread(void)
{
	CHECK_EQ(pthread_create(&thread, NULL, get_event, NULL), 0);
	/* It sleeps when exit begins. */
	usleep(50000);
}

static void join_thread(void)
{
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

void exit_then_join_a_thread_that_waits(void)
{
	run_in_exit(start_thread, join_thread);
}

static void become_non_blocking(void)
{
	make_non_blocking(endpoint.channel->fd);
}

/* As the documentation has it: with a time limit, and a call of the library each time. */
static void poll_descriptor(void)
{
	struct pollfd set = {.fd = endpoint.channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;
	while (ibv_get_cq_event(endpoint.channel, &cq, &context) != 0) {
		CHECK_EQ(errno, EAGAIN);
		CHECK(poll(&set, 1, 1) >= 0);
	}
	ibv_ack_cq_events(cq, 1);
}

void exit_then_poll_the_descriptor(void)
{
	run_in_exit(become_non_blocking, poll_descriptor);
}

static void wait_for_communication(void)
{
	struct ibv_async_event event;
	CHECK_EQ(get_object_event(endpoint.context, &event), 0);
	CHECK_EQ(event.event_type, IBV_EVENT_COMM_EST);
	ibv_ack_async_event(&event);
}

void exit_then_wait_for_an_event(void)
{
	stays_in_rtr = true;
	run_in_exit(prepare_nothing, wait_for_communication);
}
