/* Work requests. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

static struct ibv_sge whole(const struct endpoint *endpoint, uint32_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)endpoint->buffer,
				.length = length,
				.lkey = endpoint->mr->lkey};
}

/* Posts a request that must be refused with this number. */
#define REFUSE(qp, request, number)                                        \
	do {                                                               \
		struct ibv_send_wr request_ = (request), *refused_ = NULL; \
		CHECK_EQ(ibv_post_send(qp, &request_, &refused_), number); \
		CHECK(refused_ == &request_);                              \
	} while (0)

void refused_requests(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 64);
	struct connection connection = connect_to_self(&endpoint, 16);
	struct ibv_qp *left = connection.left, *reset = make_qp(&endpoint, 4);
	struct ibv_qp_attr queried;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(left, &queried, IBV_QP_CAP, &init), 0);

	struct ibv_sge pieces[64];
	for (int i = 0; i < 64; i++)
		pieces[i] = whole(&endpoint, 1);
	const struct ibv_send_wr good = {.sg_list = pieces,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr wrong = good;
	wrong.num_sge = queried.cap.max_send_sge + 1;
	REFUSE(left, wrong, EINVAL);
	wrong.num_sge = 64;
	REFUSE(left, wrong, EINVAL);

	struct ibv_sge too_long = whole(&endpoint, queried.cap.max_inline_data + 1);
	wrong = good;
	wrong.sg_list = &too_long;
	wrong.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	REFUSE(left, wrong, EINVAL);
	wrong = good;
	wrong.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	wrong.num_sge = queried.cap.max_send_sge + 1;
	REFUSE(left, wrong, EINVAL);

	wrong = good;
	wrong.opcode = 99;
	struct ibv_send_wr *refused = NULL;
	CHECK_CODE(ibv_post_send(left, &wrong, &refused), EINVAL);
	CHECK(refused == &wrong);

	/* Atomics are of eight bytes. */
	struct ibv_sge word = whole(&endpoint, 8);
	wrong = good;
	wrong.sg_list = &word;
	wrong.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	word.length = 4;
	wrong.wr.atomic.remote_addr = (uintptr_t)endpoint.buffer;
	wrong.wr.atomic.rkey = endpoint.mr->rkey;
	REFUSE(left, wrong, EINVAL);

	/* States that take no requests. */
	REFUSE(reset, good, EINVAL);
	CHECK_CODE(post_recv(reset, &endpoint, 0, 64, 1), EINVAL);
	CHECK_EQ(to_init(reset), 0);
	REFUSE(reset, good, EINVAL);
	CHECK_EQ(post_recv(reset, &endpoint, 0, 64, 1), 0);
	CHECK_EQ(to_rtr(reset, &endpoint, &endpoint.gid, left->qp_num), 0);
	REFUSE(reset, good, EINVAL);

	struct ibv_recv_wr receive = {.sg_list = pieces,
				      .num_sge = queried.cap.max_recv_sge + 1};
	struct ibv_recv_wr *refused_receive = NULL;
	CHECK_CODE(ibv_post_recv(left, &receive, &refused_receive), EINVAL);
	CHECK(refused_receive == &receive);

	/* Without room for the refused request, and without requests. */
	CHECK_CODE(ibv_post_send(reset, (struct ibv_send_wr *)&good, NULL), EINVAL);
	CHECK_CODE(ibv_post_recv(left, &receive, NULL), EINVAL);
	CHECK_ONE_OF(ibv_post_send(left, NULL, &refused), EINVAL, 0);
	CHECK_ONE_OF(ibv_post_recv(left, NULL, &refused_receive), EINVAL, 0);

	/* Of a list, what stands before the wrong request is executed. */
	struct ibv_send_wr list[3] = {good, good, good};
	for (int i = 0; i < 3; i++) {
		list[i].opcode = IBV_WR_RDMA_WRITE;
		list[i].wr_id = i;
		list[i].wr.rdma.remote_addr = (uintptr_t)endpoint.buffer + 4096;
		list[i].wr.rdma.rkey = endpoint.mr->rkey;
		list[i].next = i < 2 ? &list[i + 1] : NULL;
	}
	list[1].num_sge = 64;
	CHECK_CODE(ibv_post_send(left, list, &refused), EINVAL);
	CHECK(refused == &list[1]);
	struct ibv_wc completion = next_completion(endpoint.cq);
	CHECK_EQ(completion.status, IBV_WC_SUCCESS);
	CHECK_EQ(completion.wr_id, 0);
	CHECK_EQ(ibv_poll_cq(endpoint.cq, 1, &completion), 0);

	/* None of this has hurt the connection. */
	transfer(&endpoint, &connection, 4096, 1);
	CHECK_EQ(ibv_destroy_qp(reset), 0);
	disconnect(&connection);
	close_endpoint(&endpoint);
}

/* Copies a value to an address that is not aligned, as packed structures have them. */
#define UNALIGNED(storage, value) \
	((__typeof__(value) *)memcpy((storage) + 1, &(value), sizeof(value)))

void unaligned_requests(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 64);
	struct connection connection = connect_to_self(&endpoint, 16);
	char storage[4][sizeof(struct ibv_send_wr) + 1];

	for (unsigned flags = 0; flags <= IBV_SEND_INLINE; flags += IBV_SEND_INLINE) {
		memset(endpoint.buffer, 'a' + flags, 64);
		struct ibv_sge room = whole(&endpoint, 64), piece = room;
		room.addr += 4096;
		struct ibv_recv_wr receive = {.wr_id = 1,
					      .sg_list = UNALIGNED(storage[0], room),
					      .num_sge = 1};
		struct ibv_recv_wr *refused_receive;
		CHECK_EQ(ibv_post_recv(connection.right, UNALIGNED(storage[1], receive),
				       &refused_receive),
			 0);
		struct ibv_send_wr send = {.wr_id = 2,
					   .sg_list = UNALIGNED(storage[2], piece),
					   .num_sge = 1,
					   .opcode = IBV_WR_SEND,
					   .send_flags = IBV_SEND_SIGNALED | flags};
		struct ibv_send_wr *refused;
		CHECK_EQ(ibv_post_send(connection.left, UNALIGNED(storage[3], send), &refused), 0);
		for (int i = 0; i < 2; i++)
			CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
		CHECK_EQ(memcmp(endpoint.buffer, endpoint.buffer + 4096, 64), 0);
	}
	disconnect(&connection);
	close_endpoint(&endpoint);
}

/* What the program writes to its lists after a post changes no request that was posted. */
void posted_lists_are_copied(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 64);
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 2}};
	struct ibv_srq *srq = ibv_create_srq(endpoint.pd, &shared);
	CHECK(srq);
	struct ibv_qp_init_attr init = {
		.send_cq = endpoint.cq,
		.recv_cq = endpoint.cq,
		.srq = srq,
		.cap = {.max_send_wr = 4, .max_send_sge = 1, .max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(endpoint.pd, &init);
	CHECK(qp);
	connect_qp(qp, &endpoint, &endpoint.gid, qp->qp_num);
	struct ibv_sge pieces[2] = {whole(&endpoint, 4), whole(&endpoint, 4)};
	pieces[1].addr += 64;
	struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = pieces, .num_sge = 2}, *refused;
	CHECK_EQ(ibv_post_srq_recv(srq, &receive, &refused), 0);
	memset(pieces, 0xff, sizeof(pieces));
	memset(&receive, 0xff, sizeof(receive));
	fill(endpoint.buffer + 4096, 8, 3);
	struct ibv_sge data = {(uintptr_t)endpoint.buffer + 4096, 8, endpoint.mr->lkey};
	struct ibv_send_wr send = {.wr_id = 8,
				   .sg_list = &data,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
			   *refused_send;
	CHECK_EQ(ibv_post_send(qp, &send, &refused_send), 0);
	memset(&data, 0xff, sizeof(data));
	memset(endpoint.buffer + 4096, 0, 8);
	unsigned long long seen = 0;
	for (int i = 0; i < 2; i++) {
		struct ibv_wc completion = next_completion(endpoint.cq);
		CHECK_EQ(completion.status, IBV_WC_SUCCESS);
		seen += completion.wr_id;
	}
	CHECK_EQ(seen, 15);
	unsigned char expected[8];
	fill(expected, 8, 3);
	CHECK(!memcmp(endpoint.buffer, expected, 4) && !memcmp(endpoint.buffer + 64, expected + 4, 4));
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	close_endpoint(&endpoint);
}

void full_queues(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 256);
	struct connection connection = connect_to_self(&endpoint, 4);
	struct ibv_qp_attr attributes;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(connection.left, &attributes, IBV_QP_CAP, &init), 0);
	CHECK_EQ(init.cap.max_send_wr, attributes.cap.max_send_wr);

	/* A sent message is not complete before the peer has room for it. */
	int sends = 0, receives = 0, result;
	while ((result = post_send(connection.left, &endpoint, 0, 64, 1)) == 0)
		sends++;
	CHECK_EQ(result, ENOMEM);
	CHECK(sends >= 4 && sends <= 64);
	while ((result = post_recv(connection.right, &endpoint, 4096, 64, 2)) == 0 && receives < 256)
		receives++;
	CHECK(receives == 256 || result == ENOMEM);
	CHECK(receives >= 4);
	int expected = sends < receives ? sends : receives;
	for (int i = 0; i < 2 * expected; i++)
		CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK_EQ(post_send(connection.left, &endpoint, 0, 64, 1), 0);
	disconnect(&connection);
	close_endpoint(&endpoint);
}

/* Posts one request to `qp` and returns the status of its completion; everything else that
 * completes is flushed. */
static enum ibv_wc_status status_of(struct endpoint *endpoint, struct ibv_qp *qp,
				    struct ibv_send_wr request)
{
	struct ibv_send_wr *refused;
	request.wr_id = 77;
	request.send_flags |= IBV_SEND_SIGNALED;
	CHECK_EQ(ibv_post_send(qp, &request, &refused), 0);
	for (;;) {
		struct ibv_wc completion = next_completion(endpoint->cq);
		if (completion.wr_id == 77) {
			CHECK_EQ(completion.qp_num, qp->qp_num);
			return completion.status;
		}
	}
}

void failed_requests(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 256);
	uint64_t remote = (uintptr_t)endpoint.buffer + 4096;
	uint32_t key = endpoint.mr->rkey;
	struct {
		struct ibv_sge piece;
		enum ibv_wr_opcode opcode;
		uint64_t remote;
		uint32_t rkey;
		enum ibv_wc_status status;
	} cases[] = {
		/* Keys and ranges of this end. */
		{{(uintptr_t)endpoint.buffer, 64, ~endpoint.mr->lkey}, IBV_WR_SEND, 0, 0,
		 IBV_WC_LOC_PROT_ERR},
		{{(uintptr_t)endpoint.buffer + 3 * 4096 - 32, 64, endpoint.mr->lkey},
		 IBV_WR_RDMA_WRITE, remote, key, IBV_WC_LOC_PROT_ERR},
		{{0, 64, endpoint.mr->lkey}, IBV_WR_RDMA_WRITE, remote, key, IBV_WC_LOC_PROT_ERR},
		{{UINT64_MAX - 16, 64, endpoint.mr->lkey}, IBV_WR_SEND, 0, 0, IBV_WC_LOC_PROT_ERR},
		/* Keys and ranges of the other end. */
		{whole(&endpoint, 64), IBV_WR_RDMA_WRITE, remote, ~key, IBV_WC_REM_ACCESS_ERR},
		{whole(&endpoint, 64), IBV_WR_RDMA_WRITE, remote + 2 * 4096 - 32, key,
		 IBV_WC_REM_ACCESS_ERR},
		{whole(&endpoint, 64), IBV_WR_RDMA_WRITE, 0, key, IBV_WC_REM_ACCESS_ERR},
		{whole(&endpoint, 64), IBV_WR_RDMA_WRITE, UINT64_MAX - 16, key,
		 IBV_WC_REM_ACCESS_ERR},
		{whole(&endpoint, 64), IBV_WR_RDMA_READ, remote, ~key, IBV_WC_REM_ACCESS_ERR},
		{whole(&endpoint, 8), IBV_WR_ATOMIC_FETCH_AND_ADD, remote, ~key,
		 IBV_WC_REM_ACCESS_ERR},
		/* The responder of a card refuses a word that is not aligned. */
		{whole(&endpoint, 8), IBV_WR_ATOMIC_FETCH_AND_ADD, remote + 4, key,
		 IBV_WC_REM_INV_REQ_ERR},
		/* More than the other end has room for: it receives 32 bytes. */
		{whole(&endpoint, 64), IBV_WR_SEND, 0, 0, IBV_WC_REM_INV_REQ_ERR},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct connection connection = connect_to_self(&endpoint, 4);
		CHECK_EQ(post_recv(connection.right, &endpoint, 0, 32, 5), 0);
		struct ibv_send_wr request = {.sg_list = &cases[i].piece,
					      .num_sge = 1,
					      .opcode = cases[i].opcode};
		if (cases[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			request.wr.atomic.remote_addr = cases[i].remote;
			request.wr.atomic.rkey = cases[i].rkey;
		} else {
			request.wr.rdma.remote_addr = cases[i].remote;
			request.wr.rdma.rkey = cases[i].rkey;
		}
		enum ibv_wc_status status = status_of(&endpoint, connection.left, request);
		if (status != cases[i].status)
			fprintf(stderr, "case %zu\n", i);
		CHECK_EQ(status, cases[i].status);
		/* The queue pair is in the error state: what comes next is flushed. */
		struct ibv_qp_attr queried;
		struct ibv_qp_init_attr init;
		CHECK_EQ(ibv_query_qp(connection.left, &queried, IBV_QP_STATE, &init), 0);
		CHECK_EQ(queried.qp_state, IBV_QPS_ERR);
		request.sg_list = &(struct ibv_sge){(uintptr_t)endpoint.buffer, 8,
						    endpoint.mr->lkey};
		CHECK_EQ(status_of(&endpoint, connection.left, request), IBV_WC_WR_FLUSH_ERR);
		disconnect(&connection);
		struct ibv_wc rest;
		while (ibv_poll_cq(endpoint.cq, 1, &rest) > 0)
			CHECK(rest.status != IBV_WC_SUCCESS);
	}
	close_endpoint(&endpoint);
}

void builder_requests(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 64);
	struct ibv_qp_init_attr_ex attributes = {
		.send_cq = endpoint.cq,
		.recv_cq = endpoint.cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.pd = endpoint.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(endpoint.context, &attributes);
	CHECK(qp);
	struct ibv_qp_ex *builder = ibv_qp_to_qp_ex(qp);
	CHECK(builder);
	uint64_t remote = (uintptr_t)endpoint.buffer + 4096;
	struct ibv_sge pieces[64];
	for (int i = 0; i < 64; i++)
		pieces[i] = whole(&endpoint, 1);

	/* No state for requests. */
	ibv_wr_start(builder);
	ibv_wr_send(builder);
	ibv_wr_set_sge(builder, endpoint.mr->lkey, (uintptr_t)endpoint.buffer, 64);
	CHECK(ibv_wr_complete(builder) != 0);
	connect_qp(qp, &endpoint, &endpoint.gid, qp->qp_num);

	/* Too many pieces, and too many requests. */
	builder->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(builder);
	ibv_wr_rdma_write(builder, endpoint.mr->rkey, remote);
	ibv_wr_set_sge_list(builder, 64, pieces);
	CHECK(ibv_wr_complete(builder) != 0);
	ibv_wr_start(builder);
	for (int i = 0; i < 1000; i++) {
		ibv_wr_rdma_write(builder, endpoint.mr->rkey, remote);
		ibv_wr_set_sge(builder, endpoint.mr->lkey, (uintptr_t)endpoint.buffer, 64);
	}
	CHECK(ibv_wr_complete(builder) != 0);
	ibv_wr_start(builder);
	ibv_wr_rdma_write(builder, endpoint.mr->rkey, remote);
	ibv_wr_set_sge(builder, endpoint.mr->lkey, (uintptr_t)endpoint.buffer, 64);
	ibv_wr_abort(builder);
	/* A request behind a good one that has more pieces than the queue pair takes. */
	memset(endpoint.buffer, 1, 64);
	ibv_wr_start(builder);
	ibv_wr_rdma_write(builder, endpoint.mr->rkey, remote + 64);
	ibv_wr_set_sge(builder, endpoint.mr->lkey, (uintptr_t)endpoint.buffer, 64);
	ibv_wr_rdma_write(builder, endpoint.mr->rkey, remote + 64);
	ibv_wr_set_sge_list(builder, 5, pieces);
	CHECK(ibv_wr_complete(builder) != 0);
	struct ibv_wc completion;
	CHECK_EQ(ibv_poll_cq(endpoint.cq, 1, &completion), 0);

	/* None of this is sent, and the next request is. */
	builder->wr_id = 9;
	ibv_wr_start(builder);
	ibv_wr_rdma_write(builder, endpoint.mr->rkey, remote);
	ibv_wr_set_sge(builder, endpoint.mr->lkey, (uintptr_t)endpoint.buffer, 64);
	CHECK_EQ(ibv_wr_complete(builder), 0);
	completion = next_completion(endpoint.cq);
	CHECK_EQ(completion.status, IBV_WC_SUCCESS);
	CHECK_EQ(completion.wr_id, 9);
	CHECK_EQ(endpoint.buffer[4096 + 63], 1);
	CHECK_EQ(endpoint.buffer[4096 + 64], 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_endpoint(&endpoint);
}
