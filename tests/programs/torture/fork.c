/* Children of a process that uses a device. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "torture.h"

#define LENGTH 8192

/* Children that one scenario makes. */
#define CHILDREN 5

/* Calls functions on what the parent has opened: all fail, and those that destroy succeed. */
static void use_inherited(struct endpoint *endpoint, struct connection *connection)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_wc completion;
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	struct ibv_async_event event;

	CHECK(ibv_query_device(endpoint->context, &device) != 0);
	CHECK(ibv_query_port(endpoint->context, 1, &port) != 0);
	CHECK(!ibv_alloc_pd(endpoint->context));
	CHECK(!ibv_create_comp_channel(endpoint->context));
	CHECK(!ibv_create_cq(endpoint->context, 4, NULL, NULL, 0));
	CHECK(!ibv_reg_mr(endpoint->pd, endpoint->buffer, LENGTH, IBV_ACCESS_LOCAL_WRITE));
	/* What was complete before is the parent's. */
	CHECK(ibv_poll_cq(endpoint->cq, 1, &completion) < 0);
	CHECK(ibv_req_notify_cq(endpoint->cq, 0) != 0);
	CHECK(ibv_resize_cq(endpoint->cq, 128) != 0);
	CHECK_EQ(ibv_get_cq_event(endpoint->channel, &cq, &context), -1);
	CHECK_EQ(ibv_get_async_event(endpoint->context, &event), -1);
	if (connection) {
		struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
		struct ibv_qp_init_attr init;
		CHECK(ibv_modify_qp(connection->left, &attributes, IBV_QP_STATE) != 0);
		CHECK(ibv_query_qp(connection->left, &attributes, IBV_QP_STATE, &init) != 0);
		CHECK(post_send(connection->left, endpoint, 0, 16, 1) != 0);
		CHECK(post_recv(connection->left, endpoint, 0, 16, 1) != 0);
		disconnect(connection);
	}
	close_endpoint(endpoint);
}

/* Makes a child that uses the parent's objects and then a device of its own. */
static pid_t fork_child(struct endpoint *endpoint, struct connection *connection, unsigned seed)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		/* A timer is not inherited. */
		limit_time(30);
		if (endpoint)
			use_inherited(endpoint, connection);
		use_own_device(seed);
		_exit(0);
	}
	return child;
}

void own_device(void)
{
	use_own_device(1);
}

void fork_before_open(void)
{
	pid_t children[CHILDREN];
	for (int i = 0; i < CHILDREN; i++)
		children[i] = fork_child(NULL, NULL, i);
	use_own_device(CHILDREN);
	for (int i = 0; i < CHILDREN; i++)
		expect_success_of(children[i]);
}

void fork_after_open(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * LENGTH, 64);
	for (int i = 0; i < CHILDREN; i++)
		expect_success_of(fork_child(&endpoint, NULL, i));
	struct connection connection = connect_to_self(&endpoint, 16);
	transfer(&endpoint, &connection, LENGTH, 7);
	disconnect(&connection);
	close_endpoint(&endpoint);
}

void fork_connected(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * LENGTH, 64);
	struct connection connection = connect_to_self(&endpoint, 16);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork_child(&endpoint, &connection, i);
		/* What the child destroys is its own copy. */
		for (int round = 0; round < 20; round++)
			transfer(&endpoint, &connection, LENGTH, round);
		expect_success_of(child);
		transfer(&endpoint, &connection, LENGTH, i);
	}
	disconnect(&connection);
	close_endpoint(&endpoint);
}

void fork_outstanding(void)
{
	enum { COUNT = 32 };
	struct endpoint endpoint;
	open_endpoint(&endpoint, COUNT * LENGTH * 2, 4 * COUNT);
	struct connection connection = connect_to_self(&endpoint, COUNT);
	for (int round = 0; round < CHILDREN; round++) {
		size_t half = (size_t)COUNT * LENGTH;
		memset(endpoint.buffer + half, 0, half);
		fill(endpoint.buffer, half, round);
		for (int i = 0; i < COUNT; i++)
			CHECK_EQ(post_recv(connection.right, &endpoint, half + (size_t)i * LENGTH,
					   LENGTH, i),
				 0);
		for (int i = 0; i < COUNT; i++)
			CHECK_EQ(post_send(connection.left, &endpoint, (size_t)i * LENGTH, LENGTH,
					   1000 + i),
				 0);
		pid_t child = fork_child(&endpoint, &connection, round);
		unsigned long long sum = 0;
		for (int i = 0; i < 2 * COUNT; i++) {
			struct ibv_wc completion = next_completion(endpoint.cq);
			CHECK_EQ(completion.status, IBV_WC_SUCCESS);
			sum += completion.wr_id;
		}
		CHECK_EQ(sum, COUNT * (COUNT - 1) + COUNT * 1000);
		CHECK(is_filled(endpoint.buffer + half, half, round));
		expect_success_of(child);
	}
	disconnect(&connection);
	close_endpoint(&endpoint);
}

struct poster {
	struct endpoint endpoint;
	struct connection connection;
	atomic_bool is_stopped;
	atomic_int transfers;
};

static void *post_until_stopped(void *argument)
{
	struct poster *poster = argument;
	while (!poster->is_stopped) {
		transfer(&poster->endpoint, &poster->connection, LENGTH, poster->transfers);
		poster->transfers++;
	}
	return NULL;
}

void fork_beside_posting(void)
{
	struct poster poster = {.transfers = 0};
	pthread_t thread;
	open_endpoint(&poster.endpoint, 3 * LENGTH, 64);
	poster.connection = connect_to_self(&poster.endpoint, 16);
	CHECK_EQ(pthread_create(&thread, NULL, post_until_stopped, &poster), 0);
	for (int i = 0; i < rounds(40); i++) {
		int before = poster.transfers;
		expect_success_of(fork_child(&poster.endpoint, &poster.connection, i));
		while (poster.transfers == before)
			sched_yield();
	}
	poster.is_stopped = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	disconnect(&poster.connection);
	close_endpoint(&poster.endpoint);
}

/* Makes a child that becomes a new program with a device of its own. */
static pid_t exec_child(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		execl("/proc/self/exe", "torture", "own-device", NULL);
		_exit(127);
	}
	return child;
}

/* The library keeps sockets of a closed device for a moment, in the process that has closed it. */
void fork_after_close(void)
{
	pid_t children[CHILDREN];
	use_own_device(1);
	for (int i = 0; i < CHILDREN; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			/* A timer is not inherited. */
			limit_time(60);
			for (int j = 0; j < 3; j++)
				use_own_device(10 * i + j);
			exit(0);
		}
		use_own_device(i);
	}
	for (int i = 0; i < CHILDREN; i++)
		expect_success_of(children[i]);
}

void fork_and_exec(void)
{
	struct poster poster = {.transfers = 0};
	pthread_t thread;
	expect_success_of(exec_child());
	open_endpoint(&poster.endpoint, 3 * LENGTH, 64);
	expect_success_of(exec_child());
	poster.connection = connect_to_self(&poster.endpoint, 16);
	expect_success_of(exec_child());
	transfer(&poster.endpoint, &poster.connection, LENGTH, 1);
	CHECK_EQ(pthread_create(&thread, NULL, post_until_stopped, &poster), 0);
	for (int i = 0; i < rounds(20); i++)
		expect_success_of(exec_child());
	poster.is_stopped = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	disconnect(&poster.connection);
	close_endpoint(&poster.endpoint);
}
