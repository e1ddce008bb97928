/* Several threads that poll one queue. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "events.h"

enum { THREADS = 4, QUEUE_PAIRS = 3, DEPTH = 64, LENGTH = 8 };

struct shared {
	struct endpoint endpoint;
	/* The queue, if it is an extended one. */
	struct ibv_cq_ex *extended;
	struct connection connections[QUEUE_PAIRS];
	int count;
	/* Completions of each request, and all of them. */
	atomic_uchar *seen;
	atomic_int completed;
	atomic_int completed_of[QUEUE_PAIRS];
};

/* What a request does follows from its number, so that a torn completion shows. */
static int queue_pair_of(uint64_t id)
{
	return id % QUEUE_PAIRS;
}

static enum ibv_wr_opcode opcode_of(uint64_t id)
{
	return id / QUEUE_PAIRS % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
}

static void check_completion(struct shared *shared, uint64_t id, int status, int opcode,
			     uint32_t qpn)
{
	CHECK(id < (uint64_t)shared->count);
	CHECK_EQ(status, IBV_WC_SUCCESS);
	CHECK_EQ(opcode, opcode_of(id) == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
	CHECK_EQ(qpn, shared->connections[queue_pair_of(id)].left->qp_num);
	CHECK_EQ(atomic_fetch_add(&shared->seen[id], 1), 0);
	atomic_fetch_add(&shared->completed_of[queue_pair_of(id)], 1);
	atomic_fetch_add(&shared->completed, 1);
}

static int poll_plainly(struct shared *shared)
{
	struct ibv_wc found[4];
	int count = ibv_poll_cq(shared->endpoint.cq, 4, found);
	CHECK(count >= 0);
	for (int i = 0; i < count; i++)
		check_completion(shared, found[i].wr_id, found[i].status, found[i].opcode,
				 found[i].qp_num);
	return count;
}

static int poll_by_fields(struct shared *shared)
{
	struct ibv_poll_cq_attr attributes = {.comp_mask = 0};
	struct ibv_cq_ex *cq = shared->extended;
	int count = 0;
	int result = ibv_start_poll(cq, &attributes);
	if (result == ENOENT)
		return 0;
	CHECK_EQ(result, 0);
	do {
		uint64_t id = cq->wr_id;
		int status = cq->status;
		uint32_t qpn = ibv_wc_read_qp_num(cq);
		if (count % 8 == 7)
			sched_yield();
		check_completion(shared, id, status, ibv_wc_read_opcode(cq), qpn);
		/* The fields stay as they are until the next completion. */
		CHECK(cq->wr_id == id && (int)cq->status == status && ibv_wc_read_qp_num(cq) == qpn);
		count++;
		result = count < 16 ? ibv_next_poll(cq) : ENOENT;
	} while (result == 0);
	CHECK_EQ(result, ENOENT);
	ibv_end_poll(cq);
	return count;
}

static int poll_once(struct shared *shared)
{
	return shared->extended ? poll_by_fields(shared) : poll_plainly(shared);
}

static void *poll_until_all_are_there(void *argument)
{
	struct shared *shared = argument;
	while (shared->completed < shared->count)
		if (poll_once(shared) == 0)
			sched_yield();
	return NULL;
}

static void post_all(struct shared *shared, bool polls)
{
	int posted[QUEUE_PAIRS] = {0};
	for (int id = 0; id < shared->count; id++) {
		int qp = queue_pair_of(id);
		while (posted[qp] - shared->completed_of[qp] >= DEPTH)
			if (!polls || poll_once(shared) == 0)
				sched_yield();
		CHECK_EQ(post_rdma(shared->connections[qp].left, &shared->endpoint, opcode_of(id), 0,
				   LENGTH, (uintptr_t)shared->endpoint.buffer + LENGTH,
				   shared->endpoint.mr->rkey, id),
			 0);
		posted[qp]++;
	}
}

static void poll_with(struct shared *shared, int threads)
{
	pthread_t pollers[THREADS];
	/* Every request of every queue pair fits. */
	struct ibv_cq *own = shared->endpoint.cq;
	if (shared->extended)
		shared->endpoint.cq = ibv_cq_ex_to_cq(shared->extended);
	for (int i = 0; i < QUEUE_PAIRS; i++)
		shared->connections[i] = connect_to_self(&shared->endpoint, DEPTH);
	shared->seen = calloc(shared->count, sizeof(*shared->seen));
	CHECK(shared->seen);
	for (int i = 0; i < threads; i++)
		CHECK_EQ(pthread_create(&pollers[i], NULL, poll_until_all_are_there, shared), 0);
	post_all(shared, threads == 0);
	while (threads == 0 && shared->completed < shared->count)
		poll_once(shared);
	for (int i = 0; i < threads; i++)
		CHECK_EQ(pthread_join(pollers[i], NULL), 0);
	for (int i = 0; i < shared->count; i++)
		CHECK_EQ(shared->seen[i], 1);
	CHECK_EQ(poll_once(shared), 0);
	for (int i = 0; i < QUEUE_PAIRS; i++)
		disconnect(&shared->connections[i]);
	if (shared->extended)
		CHECK_EQ(ibv_destroy_cq(shared->endpoint.cq), 0);
	shared->endpoint.cq = own;
	free(shared->seen);
	close_endpoint(&shared->endpoint);
}

static void make_extended(struct shared *shared, uint32_t flags)
{
	struct ibv_cq_init_attr_ex attributes = {
		.cqe = QUEUE_PAIRS * DEPTH,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = flags,
	};
	shared->extended = ibv_create_cq_ex(shared->endpoint.context, &attributes);
	CHECK(shared->extended);
}

void pollers_of_a_queue(void)
{
	struct shared shared = {.count = rounds(40000)};
	open_endpoint(&shared.endpoint, 4096, QUEUE_PAIRS * DEPTH);
	poll_with(&shared, THREADS);
}

void pollers_of_an_extended_queue(void)
{
	struct shared shared = {.count = rounds(40000)};
	open_endpoint(&shared.endpoint, 4096, QUEUE_PAIRS * DEPTH);
	make_extended(&shared, 0);
	poll_with(&shared, THREADS);
}

void pollers_of_a_single_threaded_queue(void)
{
	struct shared shared = {.count = rounds(10000)};
	open_endpoint(&shared.endpoint, 4096, QUEUE_PAIRS * DEPTH);
	make_extended(&shared, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	poll_with(&shared, 0);
}
