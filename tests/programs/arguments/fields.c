/* The public fields of the objects of verbs.h: what the library writes to them, and when.
 *
 * | object | fields | written by |
 * |---|---|---|
 * | ibv_device | node_type, transport_type, names | the list of devices |
 * | ibv_context | device, cmd_fd, async_fd, num_comp_vectors | ibv_open_device |
 * | ibv_pd | context | ibv_alloc_pd |
 * | ibv_mr | context, pd, addr, length, lkey, rkey | ibv_reg_mr; pd, addr and length by ibv_rereg_mr too |
 * | ibv_mw | context, pd, type, rkey | ibv_alloc_mw; rkey by ibv_bind_mw too |
 * | ibv_ah | context, pd | ibv_create_ah |
 * | ibv_comp_channel | context, fd | ibv_create_comp_channel |
 * |  | refcnt | the creation and the end of each queue of the channel |
 * | ibv_cq | context, channel, cq_context, cqe | ibv_create_cq; cqe by ibv_resize_cq too |
 * |  | comp_events_completed | ibv_ack_cq_events |
 * |  | async_events_completed | ibv_ack_async_event |
 * | ibv_srq | context, srq_context, pd | ibv_create_srq |
 * |  | events_completed | ibv_ack_async_event |
 * | ibv_qp | context, qp_context, pd, send_cq, recv_cq, srq, qp_num, qp_type | ibv_create_qp |
 * |  | state | ibv_modify_qp and ibv_query_qp whose mask has IBV_QP_STATE |
 * |  | events_completed | ibv_ack_async_event |
 * | ibv_dm | context | ibv_alloc_dm |
 *
 * Handles are names of the kernel, mutexes and conditions are for the library alone. There are no work queues,
 * flows, counters and domains of XRC here. The fields of ibv_qp_ex and ibv_cq_ex have tests of their own. */
#include <infiniband/verbs.h>
#include <stdint.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

static void fields_of_memory(struct endpoint *endpoint)
{
	struct ibv_context *context = endpoint->context;
	CHECK(context->device->node_type == IBV_NODE_CA);
	CHECK(context->device->transport_type == IBV_TRANSPORT_IB);
	CHECK(!strcmp(context->device->name, ibv_get_device_name(context->device)));
	CHECK(context->async_fd >= 0 && context->num_comp_vectors >= 1);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && pd->context == context);

	unsigned char *buffer = endpoint->buffer;
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(mr && mr->context == context && mr->pd == pd);
	CHECK(mr->addr == buffer && mr->length == 64);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buffer + 64, 32, 0), 0);
	CHECK(mr->addr == buffer + 64 && mr->length == 32 && mr->pd == pd);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, endpoint->pd, NULL, 0, 0), 0);
	CHECK(mr->addr == buffer + 64 && mr->length == 32 && mr->pd == endpoint->pd);

	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(mw && mw->context == context && mw->pd == pd && mw->type == IBV_MW_TYPE_2);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);

	struct ibv_ah_attr attributes = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = endpoint->gid, .sgid_index = endpoint->gid_index, .hop_limit = 64},
	};
	struct ibv_ah *ah = ibv_create_ah(pd, &attributes);
	CHECK(ah && ah->context == context && ah->pd == pd);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

static void fields_of_queues(struct endpoint *endpoint)
{
	struct ibv_context *context = endpoint->context;
	int mark;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel && channel->context == context && channel->fd >= 0);
	CHECK_EQ(channel->refcnt, 0);
	struct ibv_cq *cq = ibv_create_cq(context, 8, &mark, channel, 0);
	CHECK(cq && cq->context == context && cq->channel == channel && cq->cq_context == &mark);
	CHECK(cq->cqe >= 8);
	CHECK_EQ(channel->refcnt, 1);
	struct ibv_cq *other = ibv_create_cq(context, 8, NULL, channel, 0);
	CHECK(other);
	CHECK_EQ(channel->refcnt, 2);
	CHECK_EQ(ibv_destroy_cq(other), 0);
	CHECK_EQ(channel->refcnt, 1);
	CHECK_EQ(ibv_resize_cq(cq, 1000), 0);
	CHECK(cq->cqe >= 1000);
	CHECK_EQ(cq->comp_events_completed, 0);
	CHECK_EQ(cq->async_events_completed, 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(channel->refcnt, 0);
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

/* Waits for an event of this type, and acknowledges it. */
static void take_event(struct endpoint *endpoint, enum ibv_event_type type)
{
	struct ibv_async_event event;
	CHECK_EQ(get_object_event(endpoint->context, &event), 0);
	CHECK_EQ(event.event_type, type);
	ibv_ack_async_event(&event);
}

static void fields_of_queue_pairs(struct endpoint *endpoint)
{
	int mark;
	struct ibv_srq_init_attr shared = {.srq_context = &mark, .attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(endpoint->pd, &shared);
	CHECK(srq && srq->context == endpoint->context && srq->pd == endpoint->pd);
	CHECK(srq->srq_context == &mark);
	CHECK_EQ(srq->events_completed, 0);
	struct ibv_qp_init_attr init = {
		.qp_context = &mark,
		.send_cq = endpoint->cq,
		.recv_cq = endpoint->cq,
		.srq = srq,
		.cap = {.max_send_wr = 4, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(endpoint->pd, &init), *peer = make_qp(endpoint, 4);
	CHECK(qp && qp->context == endpoint->context && qp->qp_context == &mark);
	CHECK(qp->pd == endpoint->pd && qp->send_cq == endpoint->cq && qp->recv_cq == endpoint->cq);
	CHECK(qp->srq == srq && qp->qp_type == IBV_QPT_RC && qp->qp_num > 1);
	CHECK_EQ(qp->state, IBV_QPS_RESET);
	connect_qp(qp, endpoint, &endpoint->gid, peer->qp_num);
	CHECK_EQ(qp->state, IBV_QPS_RTS);
	connect_qp(peer, endpoint, &endpoint->gid, qp->qp_num);

	/* One event of completions: the count is that of those that the program acknowledges. */
	CHECK_EQ(ibv_req_notify_cq(endpoint->cq, 0), 0);
	CHECK_EQ(post_recv(peer, endpoint, 0, 8, 1), 0);
	CHECK_EQ(post_send(qp, endpoint, 64, 8, 2), 0);
	struct ibv_cq *reported;
	void *context;
	CHECK_EQ(ibv_get_cq_event(endpoint->channel, &reported, &context), 0);
	CHECK(reported == endpoint->cq);
	CHECK_EQ(endpoint->cq->comp_events_completed, 0);
	ibv_ack_cq_events(reported, 1);
	CHECK_EQ(endpoint->cq->comp_events_completed, 1);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(next_completion(endpoint->cq).status, IBV_WC_SUCCESS);

	/* A receive queue below its limit. */
	struct ibv_sge sge = {(uintptr_t)endpoint->buffer, 64, endpoint->mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 3, .sg_list = &sge, .num_sge = 1}, *refused;
	CHECK_EQ(ibv_post_srq_recv(srq, &receive, &refused), 0);
	CHECK_EQ(ibv_post_srq_recv(srq, &receive, &refused), 0);
	struct ibv_srq_attr limit = {.srq_limit = 2};
	CHECK_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	CHECK_EQ(post_send(peer, endpoint, 128, 8, 4), 0);
	take_event(endpoint, IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK_EQ(srq->events_completed, 1);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(next_completion(endpoint->cq).status, IBV_WC_SUCCESS);

	/* The state is what a mask asks for; a call that does not ask leaves it. */
	struct ibv_qp_attr attributes;
	CHECK_EQ(post_rdma(qp, endpoint, IBV_WR_RDMA_WRITE, 0, 8, 0, 0, 5), 0);
	CHECK_EQ(next_completion(endpoint->cq).status, IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(qp->state, IBV_QPS_RTS);
	CHECK_EQ(ibv_query_qp(qp, &attributes, IBV_QP_CAP, &init), 0);
	CHECK_EQ(attributes.qp_state, IBV_QPS_ERR);
	CHECK_EQ(qp->state, IBV_QPS_RTS);
	CHECK_EQ(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init), 0);
	CHECK_EQ(qp->state, IBV_QPS_ERR);
	CHECK_EQ(qp->events_completed, 0);
	CHECK_EQ(peer->events_completed, 0);
	/* That of the peer, which has refused the request, and the last of the shared queue's users. */
	for (int i = 0; i < 2; i++) {
		struct ibv_async_event event;
		CHECK_EQ(get_object_event(endpoint->context, &event), 0);
		CHECK(event.event_type == (event.element.qp == qp ? IBV_EVENT_QP_LAST_WQE_REACHED
								  : IBV_EVENT_QP_ACCESS_ERR));
		ibv_ack_async_event(&event);
	}
	CHECK_EQ(qp->events_completed, 1);
	CHECK_EQ(peer->events_completed, 1);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_qp(peer), 0);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
}

/* A queue that is overrun fails once, however many completions are lost. */
static void fields_of_failed_queues(struct endpoint *endpoint)
{
	struct ibv_cq *small = ibv_create_cq(endpoint->context, 1, NULL, NULL, 0);
	CHECK(small);
	struct ibv_qp_init_attr init = {
		.send_cq = small,
		.recv_cq = small,
		.cap = {.max_send_wr = 64, .max_recv_wr = 2100, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(endpoint->pd, &init);
	CHECK(qp);
	CHECK_EQ(to_init(qp), 0);
	for (int i = 0; i < 2000; i++)
		CHECK_EQ(post_recv(qp, endpoint, 0, 8, i), 0);
	to_error(qp);
	take_event(endpoint, IBV_EVENT_CQ_ERR);
	CHECK_EQ(small->async_events_completed, 1);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(post_recv(qp, endpoint, 0, 8, i), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	/* A later event of another object is the next one. */
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(endpoint->pd, &shared);
	CHECK(srq);
	init = (struct ibv_qp_init_attr){.send_cq = endpoint->cq,
					 .recv_cq = endpoint->cq,
					 .srq = srq,
					 .cap = {.max_send_wr = 1, .max_send_sge = 1},
					 .qp_type = IBV_QPT_RC};
	qp = ibv_create_qp(endpoint->pd, &init);
	CHECK(qp);
	to_error(qp);
	take_event(endpoint, IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	CHECK_EQ(ibv_destroy_cq(small), 0);
}

void public_fields(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 64);
	fields_of_memory(&endpoint);
	fields_of_queues(&endpoint);
	fields_of_queue_pairs(&endpoint);
	fields_of_failed_queues(&endpoint);
	close_endpoint(&endpoint);
}

static void send_immediate_data(const struct endpoint *endpoint, struct connection *connection, enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr request = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(77)};
	request.wr.rdma.remote_addr = (uintptr_t)endpoint->buffer;
	request.wr.rdma.rkey = endpoint->mr->rkey;
	struct ibv_send_wr *refused;
	CHECK_EQ(post_recv(connection->right, endpoint, 0, 64, 1), 0);
	CHECK_EQ(ibv_post_send(connection->left, &request, &refused), 0);
	bool is_carried = opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	for (int i = 0; i < 1 + (opcode != IBV_WR_RDMA_WRITE); i++) {
		struct ibv_wc completion = next_completion(endpoint->cq);
		CHECK_EQ(completion.status, IBV_WC_SUCCESS);
		CHECK_EQ(completion.wc_flags, is_carried ? IBV_WC_WITH_IMM : 0);
		if (is_carried)
			CHECK_EQ(be32toh(completion.imm_data), 77);
	}
}

/* The completion of what carries immediate data has them at both ends, as with rxe, mlx4 and mlx5. */
void sent_immediate_data(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 64);
	struct connection connection = connect_to_self(&endpoint, 16);
	const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE};
	for (int i = 0; i < 4; i++)
		send_immediate_data(&endpoint, &connection, opcodes[i]);
	disconnect(&connection);
	close_endpoint(&endpoint);
}
