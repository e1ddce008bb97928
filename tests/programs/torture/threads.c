/* Many threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "check.h"
#include "endpoint.h"
#include "torture.h"

enum { THREADS = 8, LENGTH = 1024, PER_THREAD = 8 };

struct shared {
	struct endpoint endpoint;
	struct connection connection;
	int requests;
	atomic_int remaining;
	/* Completions of each request. */
	atomic_uchar *seen;
	atomic_int next_thread;
	atomic_int posted[THREADS];
	atomic_int completed[THREADS];
};

/* Takes completions of any thread. */
static void take_any(struct shared *shared)
{
	struct ibv_wc completions[4];
	int count = ibv_poll_cq(shared->endpoint.cq, 4, completions);
	CHECK(count >= 0);
	for (int i = 0; i < count; i++) {
		CHECK_EQ(completions[i].status, IBV_WC_SUCCESS);
		CHECK_EQ(completions[i].opcode, IBV_WC_RDMA_WRITE);
		CHECK_EQ(shared->seen[completions[i].wr_id]++, 0);
		shared->completed[completions[i].wr_id / shared->requests]++;
		shared->remaining--;
	}
	if (count == 0)
		sched_yield();
}

static void *write_through_shared(void *argument)
{
	struct shared *shared = argument;
	int thread = shared->next_thread++;
	size_t offset = (size_t)thread * 2 * LENGTH;
	uint64_t remote = (uintptr_t)shared->endpoint.buffer + offset + LENGTH;
	for (int i = 0; i < shared->requests; i++) {
		while (i - shared->completed[thread] >= PER_THREAD)
			take_any(shared);
		CHECK_EQ(post_rdma(shared->connection.left, &shared->endpoint, IBV_WR_RDMA_WRITE,
				   offset, LENGTH, remote, shared->endpoint.mr->rkey,
				   (uint64_t)thread * shared->requests + i),
			 0);
	}
	while (shared->remaining > 0)
		take_any(shared);
	return NULL;
}

void threads_on_one_queue_pair(void)
{
	struct shared shared = {.requests = rounds(2000)};
	pthread_t threads[THREADS];
	shared.remaining = THREADS * shared.requests;
	shared.seen = calloc(shared.remaining, sizeof(*shared.seen));
	CHECK(shared.seen);
	open_endpoint(&shared.endpoint, THREADS * 2 * LENGTH, THREADS * PER_THREAD);
	shared.connection = connect_to_self(&shared.endpoint, THREADS * PER_THREAD);
	for (int i = 0; i < THREADS; i++)
		fill(shared.endpoint.buffer + (size_t)i * 2 * LENGTH, LENGTH, i);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, write_through_shared, &shared), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(is_filled(shared.endpoint.buffer + (size_t)i * 2 * LENGTH + LENGTH, LENGTH, i));
	for (int i = 0; i < THREADS * shared.requests; i++)
		CHECK_EQ(shared.seen[i], 1);
	free(shared.seen);
	disconnect(&shared.connection);
	close_endpoint(&shared.endpoint);
}

/* A thread with objects of its own on a context that all have. */
static void *transfer_alone(void *argument)
{
	struct endpoint endpoint = *(struct endpoint *)argument;
	endpoint.length = 3 * LENGTH;
	endpoint.buffer = calloc(3, LENGTH);
	CHECK(endpoint.buffer);
	for (int i = 0; i < rounds(20); i++) {
		endpoint.cq = ibv_create_cq(endpoint.context, 16, NULL, NULL, 0);
		CHECK(endpoint.cq);
		endpoint.mr = ibv_reg_mr(endpoint.pd, endpoint.buffer, endpoint.length,
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		CHECK(endpoint.mr);
		struct connection connection = connect_to_self(&endpoint, 4);
		for (int round = 0; round < 20; round++)
			transfer(&endpoint, &connection, LENGTH, i + round);
		disconnect(&connection);
		CHECK_EQ(ibv_dereg_mr(endpoint.mr), 0);
		CHECK_EQ(ibv_destroy_cq(endpoint.cq), 0);
	}
	free(endpoint.buffer);
	return NULL;
}

void threads_on_many_queue_pairs(void)
{
	struct endpoint endpoint;
	pthread_t threads[THREADS];
	open_endpoint(&endpoint, 4096, 16);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, transfer_alone, &endpoint), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	close_endpoint(&endpoint);
}

static void *open_and_close(void *unused)
{
	(void)unused;
	for (int i = 0; i < rounds(20); i++)
		use_own_device(i);
	return NULL;
}

void threads_open_and_close(void)
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}
