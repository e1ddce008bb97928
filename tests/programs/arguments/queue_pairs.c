/* Queue pairs: creation and states. */
#include <stdint.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

static struct ibv_qp_init_attr good(const struct endpoint *endpoint)
{
	return (struct ibv_qp_init_attr){
		.send_cq = endpoint->cq,
		.recv_cq = endpoint->cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
}

void queue_pair_creation(void)
{
	struct endpoint endpoint;
	struct ibv_device_attr device;
	open_endpoint(&endpoint, 4096, 16);
	CHECK_EQ(ibv_query_device(endpoint.context, &device), 0);

	const struct ibv_qp_cap too_large[] = {
		{.max_send_wr = device.max_qp_wr + 1},
		{.max_recv_wr = device.max_qp_wr + 1},
		{.max_send_sge = device.max_sge + 1},
		{.max_recv_sge = device.max_sge + 1},
		{.max_inline_data = 1 << 20},
		{.max_send_wr = UINT32_MAX},
		{.max_recv_wr = UINT32_MAX},
		{.max_send_sge = UINT32_MAX},
		{.max_recv_sge = UINT32_MAX},
		{.max_inline_data = UINT32_MAX},
	};
	for (size_t i = 0; i < sizeof(too_large) / sizeof(too_large[0]); i++) {
		struct ibv_qp_init_attr attributes = good(&endpoint);
		const struct ibv_qp_cap *cap = &too_large[i];
		if (cap->max_send_wr)
			attributes.cap.max_send_wr = cap->max_send_wr;
		if (cap->max_recv_wr)
			attributes.cap.max_recv_wr = cap->max_recv_wr;
		if (cap->max_send_sge)
			attributes.cap.max_send_sge = cap->max_send_sge;
		if (cap->max_recv_sge)
			attributes.cap.max_recv_sge = cap->max_recv_sge;
		attributes.cap.max_inline_data = cap->max_inline_data;
		CHECK_NULL(ibv_create_qp(endpoint.pd, &attributes), EINVAL);
	}
	struct ibv_qp_init_attr attributes = good(&endpoint);
	attributes.qp_type = 99;
	errno = 0;
	CHECK(!ibv_create_qp(endpoint.pd, &attributes));
	CHECK_ONE_OF(errno, EINVAL, EOPNOTSUPP);
	attributes.qp_type = IBV_QPT_RAW_PACKET;
	errno = 0;
	CHECK(!ibv_create_qp(endpoint.pd, &attributes));
	CHECK_ONE_OF(errno, EPERM, EOPNOTSUPP);

	struct ibv_qp_init_attr_ex extended = {
		.send_cq = endpoint.cq,
		.recv_cq = endpoint.cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.pd = endpoint.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | 1u << 31,
	};
	CHECK_NULL(ibv_create_qp_ex(endpoint.context, &extended), EOPNOTSUPP);
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	extended.create_flags = 1u << 31;
	CHECK_NULL(ibv_create_qp_ex(endpoint.context, &extended), EOPNOTSUPP);
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	extended.send_ops_flags = 1ull << 60;
	CHECK_NULL(ibv_create_qp_ex(endpoint.context, &extended), EOPNOTSUPP);
	/* What no datagram can do. */
	extended.qp_type = IBV_QPT_UD;
	extended.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	CHECK_NULL(ibv_create_qp_ex(endpoint.context, &extended), EOPNOTSUPP);

	attributes = good(&endpoint);
	struct ibv_qp *qp = ibv_create_qp(endpoint.pd, &attributes);
	CHECK(qp);
	CHECK(!ibv_qp_to_qp_ex(qp));
	/* Where elements have their place there is one for as many inline bytes. */
	CHECK(attributes.cap.max_inline_data >=
	      attributes.cap.max_send_sge * sizeof(struct ibv_sge));
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_endpoint(&endpoint);
}

/* Attributes with which each transition to RTS succeeds. */
static struct ibv_qp_attr all_good(const struct endpoint *endpoint, uint32_t qpn)
{
	return (struct ibv_qp_attr){
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = endpoint->gid,
				    .sgid_index = endpoint->gid_index,
				    .hop_limit = 64}},
	};
}

#define INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR                                                                              \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS                                                                              \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |          \
	 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

static int modify(struct ibv_qp *qp, struct ibv_qp_attr attributes, enum ibv_qp_state state,
		  int mask)
{
	attributes.qp_state = state;
	return ibv_modify_qp(qp, &attributes, mask);
}

/* Each attribute of a transition is needed, beside the state. */
static void need_each(struct ibv_qp *qp, struct ibv_qp_attr attributes, enum ibv_qp_state state,
		      int mask)
{
	for (int bit = 1; bit <= mask; bit <<= 1)
		if (mask & bit & ~IBV_QP_STATE)
			CHECK_CODE(modify(qp, attributes, state, mask & ~bit), EINVAL);
}

void queue_pair_transitions(void)
{
	struct endpoint endpoint;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr queried;
	open_endpoint(&endpoint, 3 * 4096, 16);
	struct ibv_qp *qp = make_qp(&endpoint, 4);
	struct ibv_qp_attr attributes = all_good(&endpoint, qp->qp_num);
	struct ibv_qp_attr wrong;

	CHECK_CODE(modify(qp, attributes, IBV_QPS_RTR, RTR), EINVAL);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_RTS, RTS), EINVAL);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_SQD, IBV_QP_STATE), EINVAL);
	CHECK_CODE(modify(qp, attributes, 99, INIT), EINVAL);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_INIT, INIT | 1 << 30), EOPNOTSUPP);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_INIT, INIT | IBV_QP_QKEY), EINVAL);
	need_each(qp, attributes, IBV_QPS_INIT, INIT);
	wrong = attributes;
	wrong.port_num = 2;
	CHECK_CODE(modify(qp, wrong, IBV_QPS_INIT, INIT), EINVAL);
	CHECK_EQ(ibv_query_qp(qp, &queried, IBV_QP_STATE, &init), 0);
	CHECK_EQ(queried.qp_state, IBV_QPS_RESET);
	CHECK_EQ(modify(qp, attributes, IBV_QPS_INIT, INIT), 0);

	CHECK_CODE(modify(qp, attributes, IBV_QPS_RTS, RTS), EINVAL);
	need_each(qp, attributes, IBV_QPS_RTR, RTR);
	wrong = attributes;
	wrong.path_mtu = IBV_MTU_4096 + 1;
	CHECK_CODE(modify(qp, wrong, IBV_QPS_RTR, RTR), EINVAL);
	wrong = attributes;
	wrong.ah_attr.is_global = 0;
	CHECK_CODE(modify(qp, wrong, IBV_QPS_RTR, RTR), EINVAL);
	wrong = attributes;
	wrong.ah_attr.port_num = 2;
	CHECK_CODE(modify(qp, wrong, IBV_QPS_RTR, RTR), EINVAL);
	wrong = attributes;
	wrong.ah_attr.grh.sgid_index = 255;
	CHECK_CODE(modify(qp, wrong, IBV_QPS_RTR, RTR), EINVAL);
	wrong.ah_attr.grh.sgid_index = 254;
	CHECK_CODE(modify(qp, wrong, IBV_QPS_RTR, RTR), ENODATA);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_RTR, RTR | 1 << 21), EOPNOTSUPP);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_RTR, RTR | IBV_QP_PATH_MIG_STATE), EINVAL);
	CHECK_CODE(ibv_query_qp(qp, &queried, IBV_QP_RATE_LIMIT, &init), EOPNOTSUPP);
	CHECK_EQ(ibv_query_qp(qp, &queried, IBV_QP_STATE, &init), 0);
	CHECK_EQ(queried.qp_state, IBV_QPS_INIT);
	CHECK_EQ(modify(qp, attributes, IBV_QPS_RTR, RTR), 0);

	need_each(qp, attributes, IBV_QPS_RTS, RTS);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_INIT, INIT), EINVAL);
	wrong = attributes;
	wrong.timeout = 32;
	CHECK_CODE(modify(qp, wrong, IBV_QPS_RTS, RTS), EINVAL);
	wrong = attributes;
	wrong.max_rd_atomic = 255;
	CHECK_CODE(modify(qp, wrong, IBV_QPS_RTS, RTS), EINVAL);
	CHECK_EQ(modify(qp, attributes, IBV_QPS_RTS, RTS | IBV_QP_PATH_MIG_STATE), 0);

	CHECK_CODE(modify(qp, attributes, IBV_QPS_INIT, INIT), EINVAL);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_RTR, RTR), EINVAL);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_PATH_MTU), EINVAL);
	CHECK_EQ(modify(qp, attributes, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK_CODE(modify(qp, attributes, IBV_QPS_RTS, RTS), EINVAL);
	CHECK_EQ(modify(qp, attributes, IBV_QPS_RESET, IBV_QP_STATE), 0);
	/* All of it again, from RESET to a transfer to itself. */
	CHECK_EQ(modify(qp, attributes, IBV_QPS_INIT, INIT), 0);
	CHECK_EQ(modify(qp, attributes, IBV_QPS_RTR, RTR), 0);
	CHECK_EQ(modify(qp, attributes, IBV_QPS_RTS, RTS), 0);
	CHECK_EQ(ibv_query_qp(qp, &queried, IBV_QP_STATE, &init), 0);
	CHECK_EQ(queried.qp_state, IBV_QPS_RTS);
	CHECK_EQ(qp->state, IBV_QPS_RTS);
	CHECK(init.send_cq == endpoint.cq && init.qp_type == IBV_QPT_RC);
	struct connection itself = {qp, qp};
	transfer(&endpoint, &itself, 4096, 3);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_endpoint(&endpoint);
}

/* Numbers beyond the bits of their field are used without the others, and queried as they were set. */
void attributes_beyond_their_fields(void)
{
	struct endpoint endpoint;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr queried;
	open_endpoint(&endpoint, 3 * 4096, 16);
	struct ibv_qp *qp = make_qp(&endpoint, 4);
	struct ibv_qp_attr attributes = all_good(&endpoint, qp->qp_num);
	attributes.retry_cnt = 15;
	attributes.rnr_retry = 200;
	attributes.max_rd_atomic = 5;
	attributes.max_dest_rd_atomic = 3;
	CHECK_EQ(modify(qp, attributes, IBV_QPS_INIT, INIT), 0);
	CHECK_EQ(modify(qp, attributes, IBV_QPS_RTR, RTR), 0);
	attributes.min_rnr_timer = 44;
	CHECK_EQ(modify(qp, attributes, IBV_QPS_RTS, RTS | IBV_QP_MIN_RNR_TIMER), 0);
	CHECK_EQ(ibv_query_qp(qp, &queried, IBV_QP_STATE, &init), 0);
	CHECK_EQ(queried.retry_cnt, 15);
	CHECK_EQ(queried.rnr_retry, 200);
	CHECK_EQ(queried.min_rnr_timer, 44);
	CHECK_EQ(queried.max_rd_atomic, 8);
	CHECK_EQ(queried.max_dest_rd_atomic, 4);
	struct connection itself = {qp, qp};
	transfer(&endpoint, &itself, 4096, 3);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_endpoint(&endpoint);
}

void addresses(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 16);
	const struct ibv_ah_attr attributes = all_good(&endpoint, 0).ah_attr;
	struct ibv_ah_attr wrong = attributes;
	wrong.port_num = 2;
	CHECK_NULL(ibv_create_ah(endpoint.pd, &wrong), EINVAL);
	wrong.port_num = 0;
	CHECK_NULL(ibv_create_ah(endpoint.pd, &wrong), EINVAL);
	wrong = attributes;
	wrong.is_global = 0;
	CHECK_NULL(ibv_create_ah(endpoint.pd, &wrong), EINVAL);
	wrong = attributes;
	wrong.grh.sgid_index = 255;
	CHECK_NULL(ibv_create_ah(endpoint.pd, &wrong), EINVAL);
	wrong.grh.sgid_index = 254;
	errno = 0;
	CHECK(!ibv_create_ah(endpoint.pd, &wrong));
	CHECK_EQ(errno, ENODATA);

	/* Headers that name no address, or one of another host. */
	struct ibv_wc completion = {.wc_flags = IBV_WC_GRH};
	unsigned char header[40] = {0};
	struct ibv_ah_attr found;
	CHECK_EQ(ibv_init_ah_from_wc(endpoint.context, 1, &completion, (struct ibv_grh *)header,
				     &found),
		 -1);
	CHECK(!ibv_create_ah_from_wc(endpoint.pd, &completion, (struct ibv_grh *)header, 1));
	header[0] = 0x60;
	CHECK_EQ(ibv_init_ah_from_wc(endpoint.context, 1, &completion, (struct ibv_grh *)header,
				     &found),
		 -1);
	completion.wc_flags = 0;
	CHECK_EQ(ibv_init_ah_from_wc(endpoint.context, 1, &completion, NULL, &found), 0);
	CHECK_EQ(found.is_global, 0);
	struct ibv_ah *ah = ibv_create_ah(endpoint.pd, (struct ibv_ah_attr *)&attributes);
	CHECK(ah);
	CHECK(ah->pd == endpoint.pd && ah->context == endpoint.context);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	close_endpoint(&endpoint);
}
