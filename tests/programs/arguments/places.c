/* Work queues that are full of requests whose completions were not polled. With ROCE_QUEUES=rxe these do
 * not count. */
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

#define DEPTH 16
#define MANY 2000
/* Most requests of a queue here. */
#define MAX 256

static bool counts_done_requests(void)
{
	const char *rule = getenv("ROCE_QUEUES");
	return !rule || strcmp(rule, "rxe") != 0;
}

static unsigned capacity_of(struct ibv_qp *qp, bool sends)
{
	struct ibv_qp_attr attributes;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(qp, &attributes, IBV_QP_CAP, &init), 0);
	unsigned capacity = sends ? init.cap.max_send_wr : init.cap.max_recv_wr;
	CHECK(capacity >= DEPTH && capacity <= MAX);
	return capacity;
}

/* A queue pair, its peer, and how many sends it has room for. */
struct bench {
	struct endpoint endpoint;
	struct connection connection;
	unsigned capacity;
};

static void begin(struct bench *bench)
{
	open_endpoint(&bench->endpoint, 3 * 4096, MANY);
	bench->connection = connect_to_self(&bench->endpoint, DEPTH);
	bench->capacity = capacity_of(bench->connection.left, true);
}

static void end(struct bench *bench)
{
	disconnect(&bench->connection);
	close_endpoint(&bench->endpoint);
}

static int post_write(struct ibv_qp *qp, const struct endpoint *endpoint, int flags, uint64_t id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)endpoint->buffer,
			      .length = 8,
			      .lkey = endpoint->mr->lkey};
	struct ibv_send_wr request = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags,
		.wr.rdma = {.remote_addr = (uintptr_t)endpoint->buffer + 4096,
			    .rkey = endpoint->mr->rkey},
	};
	struct ibv_send_wr *refused;
	return ibv_post_send(qp, &request, &refused);
}

/* Posts WRITEs until one is refused, and waits for their end, which no poll sees. Returns how many were
 * posted, `most` at the most. */
static unsigned post_writes(struct ibv_qp *qp, const struct endpoint *endpoint, unsigned most,
			    unsigned signaled_every)
{
	unsigned posted = 0;
	for (int refused = 0; posted < most && refused < 20;) {
		int flags = (posted + 1) % signaled_every ? 0 : IBV_SEND_SIGNALED;
		int result = post_write(qp, endpoint, flags, posted);
		if (result == 0) {
			posted++;
			refused = 0;
			continue;
		}
		CHECK_EQ(result, ENOMEM);
		refused++;
		usleep(1000);
	}
	return posted;
}

static unsigned polled(struct ibv_cq *cq)
{
	struct ibv_wc completion;
	unsigned count = 0;
	while (ibv_poll_cq(cq, 1, &completion) == 1)
		count++;
	return count;
}

static void *poll_one(void *cq)
{
	next_completion(cq);
	return NULL;
}

/* A send queue takes a request for each completion that is polled, by whichever thread. */
void unpolled_sends(void)
{
	struct bench bench;
	begin(&bench);
	struct ibv_qp *qp = bench.connection.left;
	unsigned capacity = bench.capacity;
	if (!counts_done_requests()) {
		CHECK_EQ(post_writes(qp, &bench.endpoint, 5 * capacity, 1), 5 * capacity);
	} else {
		CHECK_EQ(post_writes(qp, &bench.endpoint, MANY, 1), capacity);
		for (int i = 0; i < 3; i++) {
			pthread_t thread;
			if (i == 0) {
				next_completion(bench.endpoint.cq);
			} else {
				CHECK_EQ(pthread_create(&thread, NULL, poll_one, bench.endpoint.cq), 0);
				CHECK_EQ(pthread_join(thread, NULL), 0);
			}
			CHECK_EQ(post_writes(qp, &bench.endpoint, MANY, 1), 1);
		}
		CHECK_EQ(polled(bench.endpoint.cq), capacity);
	}
	end(&bench);
}

/* As above, with a queue that is polled field by field. */
void unpolled_extended(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, MANY);
	struct ibv_cq_init_attr_ex attributes = {.cqe = MANY};
	struct ibv_cq_ex *extended = ibv_create_cq_ex(endpoint.context, &attributes);
	CHECK(extended);
	struct ibv_cq *plain = endpoint.cq;
	endpoint.cq = ibv_cq_ex_to_cq(extended);
	struct connection connection = connect_to_self(&endpoint, DEPTH);
	endpoint.cq = plain;
	unsigned capacity = capacity_of(connection.left, true);
	if (counts_done_requests()) {
		CHECK_EQ(post_writes(connection.left, &endpoint, MANY, 1), capacity);
		struct ibv_poll_cq_attr none = {.comp_mask = 0};
		CHECK_EQ(ibv_start_poll(extended, &none), 0);
		CHECK_EQ(ibv_next_poll(extended), 0);
		ibv_end_poll(extended);
		CHECK_EQ(post_writes(connection.left, &endpoint, MANY, 1), 2);
	}
	disconnect(&connection);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)), 0);
	close_endpoint(&endpoint);
}

/* Requests without a completion count until the next one is polled that has one. */
void unsignaled_sends(void)
{
	struct bench bench;
	begin(&bench);
	struct ibv_qp *qp = bench.connection.left;
	unsigned capacity = bench.capacity;
	if (counts_done_requests()) {
		CHECK_EQ(post_writes(qp, &bench.endpoint, MANY, 4), capacity);
		CHECK_EQ(next_completion(bench.endpoint.cq).wr_id, 3);
		CHECK_EQ(post_writes(qp, &bench.endpoint, MANY, MANY), 4);
		CHECK_EQ(polled(bench.endpoint.cq), capacity / 4 - 1);
		/* The last four have none. */
		CHECK_EQ(post_writes(qp, &bench.endpoint, MANY, MANY), capacity - 4);
		/* Each that is flushed has one of its own. */
		to_error(qp);
		CHECK_EQ(polled(bench.endpoint.cq), 0);
		CHECK_EQ(post_write(qp, &bench.endpoint, 0, 0), ENOMEM);
	} else {
		CHECK_EQ(post_writes(qp, &bench.endpoint, MANY, MANY + 1), MANY);
	}
	end(&bench);
}

/* Each request that is flushed counts until its completion is polled. */
void flushed_sends(void)
{
	struct bench bench;
	begin(&bench);
	struct ibv_qp *qp = bench.connection.left;
	unsigned capacity = bench.capacity;
	to_error(qp);
	unsigned posted = post_writes(qp, &bench.endpoint, 5 * MAX, MANY);
	CHECK_EQ(posted, counts_done_requests() ? capacity : 5 * MAX);
	CHECK_EQ(next_completion(bench.endpoint.cq).status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(post_write(qp, &bench.endpoint, 0, 0), 0);
	CHECK_EQ(post_write(qp, &bench.endpoint, 0, 0), counts_done_requests() ? ENOMEM : 0);
	end(&bench);
}

/* RESET clears the count, and so does the end of a queue pair; completions of before retire nothing. */
void places_after_reset(void)
{
	struct bench bench;
	begin(&bench);
	struct endpoint *endpoint = &bench.endpoint;
	struct connection *pair = &bench.connection;
	unsigned capacity = bench.capacity;
	unsigned most = counts_done_requests() ? MANY : capacity;
	for (int round = 0; round < 3; round++) {
		CHECK_EQ(post_writes(pair->left, endpoint, most, 1), capacity);
		struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
		CHECK_EQ(ibv_modify_qp(pair->left, &reset, IBV_QP_STATE), 0);
		CHECK_EQ(ibv_modify_qp(pair->right, &reset, IBV_QP_STATE), 0);
		CHECK_EQ(polled(endpoint->cq), 0);
		connect_qp(pair->left, endpoint, &endpoint->gid, pair->right->qp_num);
		connect_qp(pair->right, endpoint, &endpoint->gid, pair->left->qp_num);
	}
	CHECK_EQ(post_writes(pair->left, endpoint, most, 1), capacity);
	disconnect(pair);
	*pair = connect_to_self(endpoint, DEPTH);
	CHECK_EQ(post_writes(pair->left, endpoint, most, 1), capacity);
	/* Those of the queue pair of before, if they are there, come first. */
	struct ibv_wc completion;
	int left = 0;
	while (completion = next_completion(endpoint->cq), completion.qp_num != pair->left->qp_num)
		left++;
	CHECK(left == 0 || left == (int)capacity);
	if (counts_done_requests())
		CHECK_EQ(post_writes(pair->left, endpoint, MANY, 1), 1);
	end(&bench);
}

/* Sends so many messages, and waits for their completions. */
static void send_messages(struct ibv_qp *qp, const struct endpoint *endpoint, struct ibv_cq *cq,
			  unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		CHECK_EQ(post_send(qp, endpoint, 0, 8, i), 0);
		CHECK_EQ(next_completion(cq).status, IBV_WC_SUCCESS);
	}
}

static int post_shared(struct ibv_srq *srq, const struct endpoint *endpoint)
{
	struct ibv_sge sge = {.addr = (uintptr_t)endpoint->buffer + 4096,
			      .length = 64,
			      .lkey = endpoint->mr->lkey};
	struct ibv_recv_wr request = {.sg_list = &sge, .num_sge = 1}, *refused;
	return ibv_post_srq_recv(srq, &request, &refused);
}

/* A receive queue takes a receive for each completion of one that is polled; a shared one too, of
 * whichever completion queue. */
void unpolled_receives(void)
{
	bool are_counted = counts_done_requests();
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, MANY);
	struct ibv_cq *received[2];
	for (int i = 0; i < 2; i++)
		CHECK(received[i] = ibv_create_cq(endpoint.context, MANY, NULL, NULL, 0));
	for (int is_shared = 0; is_shared < 2; is_shared++) {
		struct ibv_srq_init_attr shared = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
		struct ibv_srq *srq = is_shared ? ibv_create_srq(endpoint.pd, &shared) : NULL;
		struct ibv_qp *receivers[2], *senders[2];
		for (int i = 0; i < 2; i++) {
			struct ibv_qp_init_attr init = {
				.send_cq = endpoint.cq,
				.recv_cq = received[i],
				.srq = srq,
				.cap = {.max_send_wr = 1, .max_recv_wr = DEPTH, .max_send_sge = 1,
					.max_recv_sge = 1},
				.qp_type = IBV_QPT_RC,
			};
			CHECK(receivers[i] = ibv_create_qp(endpoint.pd, &init));
			senders[i] = make_qp(&endpoint, DEPTH);
			connect_qp(receivers[i], &endpoint, &endpoint.gid, senders[i]->qp_num);
			connect_qp(senders[i], &endpoint, &endpoint.gid, receivers[i]->qp_num);
		}
		struct ibv_srq_attr found;
		if (is_shared)
			CHECK_EQ(ibv_query_srq(srq, &found), 0);
		unsigned capacity = is_shared ? found.max_wr : capacity_of(receivers[0], false);
		int result = 0;
		for (unsigned i = 0; i < capacity + 1; i++) {
			CHECK_EQ(result, 0);
			result = is_shared ? post_shared(srq, &endpoint)
					   : post_recv(receivers[0], &endpoint, 4096, 64, i);
		}
		CHECK_EQ(result, ENOMEM);
		send_messages(senders[0], &endpoint, endpoint.cq, capacity - is_shared);
		if (is_shared)
			send_messages(senders[1], &endpoint, endpoint.cq, 1);
		for (int polls = 0; polls < 2; polls++) {
			int first = is_shared ? post_shared(srq, &endpoint)
					      : post_recv(receivers[0], &endpoint, 4096, 64, 0);
			CHECK_EQ(first, are_counted && polls == 0 ? ENOMEM : 0);
			int second = is_shared ? post_shared(srq, &endpoint)
					       : post_recv(receivers[0], &endpoint, 4096, 64, 0);
			CHECK_EQ(second, are_counted ? ENOMEM : 0);
			if (polls == 0)
				next_completion(received[is_shared]);
		}
		for (int i = 0; i < 2; i++) {
			CHECK_EQ(ibv_destroy_qp(senders[i]), 0);
			CHECK_EQ(ibv_destroy_qp(receivers[i]), 0);
			polled(received[i]);
		}
		if (is_shared)
			CHECK_EQ(ibv_destroy_srq(srq), 0);
	}
	CHECK_EQ(ibv_destroy_cq(received[0]), 0);
	CHECK_EQ(ibv_destroy_cq(received[1]), 0);
	close_endpoint(&endpoint);
}
