/* Completion queues that the program lets run over. */
#include <stdint.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

#define CAPACITY 3
#define REQUESTS 100

/* The newest completions stay, there is no event, and the connection goes on. */
void overruns(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, REQUESTS);
	struct ibv_cq_init_attr_ex attributes = {
		.cqe = CAPACITY,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
	};
	struct ibv_cq *small = ibv_cq_ex_to_cq(ibv_create_cq_ex(endpoint.context, &attributes));
	CHECK(small);
	CHECK(small->cqe >= CAPACITY);
	struct ibv_qp_init_attr init = {
		.send_cq = small,
		.recv_cq = endpoint.cq,
		.cap = {.max_send_wr = REQUESTS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(endpoint.pd, &init), *peer = make_qp(&endpoint, REQUESTS);
	CHECK(qp);
	connect_qp(qp, &endpoint, &endpoint.gid, peer->qp_num);
	connect_qp(peer, &endpoint, &endpoint.gid, qp->qp_num);
	for (int i = 0; i < REQUESTS; i++) {
		CHECK_EQ(post_recv(peer, &endpoint, 4096, 64, i), 0);
		CHECK_EQ(post_send(qp, &endpoint, 0, 64, i), 0);
	}
	/* The last receive completes before the last request does. */
	for (int i = 0; i < REQUESTS; i++)
		CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	struct ibv_qp_attr state;
	CHECK_EQ(ibv_modify_qp(qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_SQD},
			       IBV_QP_STATE),
		 0);
	do
		CHECK_EQ(ibv_query_qp(qp, &state, IBV_QP_STATE, &init), 0);
	while (state.sq_draining);
	CHECK_EQ(state.qp_state, IBV_QPS_SQD);
	struct ibv_wc completions[REQUESTS];
	int left = ibv_poll_cq(small, REQUESTS, completions);
	CHECK_EQ(left, small->cqe);
	CHECK(left < REQUESTS);
	for (int i = 0; i < left; i++) {
		CHECK_EQ(completions[i].status, IBV_WC_SUCCESS);
		CHECK_EQ(completions[i].wr_id, REQUESTS - left + i);
	}
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_qp(peer), 0);
	CHECK_EQ(ibv_destroy_cq(small), 0);
	close_endpoint(&endpoint);
}
