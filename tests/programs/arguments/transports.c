/* What transports such as NCCL's, UCCL's and NIXL's ask for. */
#include <stdint.h>
#include <unistd.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

/* Moderation of events is advice. */
void moderation(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 4);
	struct ibv_modify_cq_attr asked = {.attr_mask = IBV_CQ_ATTR_MODERATE,
					   .moderate = {.cq_count = 64, .cq_period = 16}};
	CHECK_EQ(ibv_modify_cq(endpoint.cq, &asked), 0);
	asked.moderate = (struct ibv_moderate_cq){.cq_count = 0, .cq_period = 0};
	CHECK_EQ(ibv_modify_cq(endpoint.cq, &asked), 0);
	asked.moderate = (struct ibv_moderate_cq){.cq_count = 65535, .cq_period = 65535};
	CHECK_EQ(ibv_modify_cq(endpoint.cq, &asked), 0);
	asked.attr_mask = 0;
	CHECK_CODE(ibv_modify_cq(endpoint.cq, &asked), EINVAL);
	asked.attr_mask = IBV_CQ_ATTR_MODERATE | IBV_CQ_ATTR_RESERVED;
	CHECK_CODE(ibv_modify_cq(endpoint.cq, &asked), EOPNOTSUPP);
	asked.attr_mask = UINT32_MAX;
	CHECK_CODE(ibv_modify_cq(endpoint.cq, &asked), EOPNOTSUPP);
	close_endpoint(&endpoint);
}

static struct ibv_qp *make_inline(struct endpoint *endpoint, uint32_t asked, uint32_t *granted)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = endpoint->cq,
		.recv_cq = endpoint->cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = asked},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(endpoint->pd, &attributes);
	CHECK(qp);
	struct ibv_qp_attr queried;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(qp, &queried, IBV_QP_CAP, &init), 0);
	CHECK_EQ(queried.cap.max_inline_data, attributes.cap.max_inline_data);
	CHECK_EQ(init.cap.max_inline_data, attributes.cap.max_inline_data);
	*granted = attributes.cap.max_inline_data;
	return qp;
}

static int write_bytes(struct endpoint *endpoint, struct ibv_qp *qp, uint32_t length)
{
	struct ibv_sge piece = {(uintptr_t)endpoint->buffer, length, 0};
	struct ibv_send_wr *refused, request = {
		.sg_list = &piece,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)endpoint->buffer + 8192, endpoint->mr->rkey},
	};
	return ibv_post_send(qp, &request, &refused);
}

/* A queue pair takes more inline bytes than it was asked for: as many as it says, and no more. */
void granted_inline_data(void)
{
	struct endpoint endpoint;
	uint32_t granted;
	open_endpoint(&endpoint, 2 * 8192, 16);
	const uint32_t asked[] = {1, 60, 64, 128, 129, 220, 512, 4000, 4096};
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		struct ibv_qp *qp = make_inline(&endpoint, asked[i], &granted);
		CHECK(granted >= asked[i] && granted % 128 == 0 && granted < asked[i] + 128);
		connect_qp(qp, &endpoint, &endpoint.gid, qp->qp_num);
		fill(endpoint.buffer, granted, asked[i]);
		CHECK_EQ(write_bytes(&endpoint, qp, granted), 0);
		memset(endpoint.buffer, 0, granted);
		CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
		CHECK(is_filled(endpoint.buffer + 8192, granted, asked[i]));
		CHECK_EQ(write_bytes(&endpoint, qp, granted + 1), EINVAL);
		CHECK_EQ(ibv_destroy_qp(qp), 0);
	}
	/* As many as the element takes, since none was asked for. */
	struct ibv_qp *qp = make_inline(&endpoint, 0, &granted);
	CHECK_EQ(granted, sizeof(struct ibv_sge));
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_endpoint(&endpoint);
}
