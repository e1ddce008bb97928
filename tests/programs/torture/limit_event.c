#include "limit_event.h"

#include <stdint.h>

#include "check.h"

static struct ibv_qp *make_qp_with_srq(struct endpoint *endpoint, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = endpoint->cq,
		.recv_cq = endpoint->cq,
		.srq = srq,
		.cap = {.max_send_wr = 4, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(endpoint->pd, &attributes);
	CHECK(qp);
	return qp;
}

void make_limited(struct limited *limited, struct endpoint *endpoint)
{
	struct ibv_srq_init_attr attributes = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(endpoint->pd, &attributes);
	CHECK(srq);
	struct ibv_qp *left = make_qp_with_srq(endpoint, srq);
	struct ibv_qp *right = make_qp_with_srq(endpoint, srq);
	connect_qp(left, endpoint, &endpoint->gid, right->qp_num);
	connect_qp(right, endpoint, &endpoint->gid, left->qp_num);
	*limited = (struct limited){endpoint, srq, {left, right}};
}

void destroy_limited(struct limited *limited)
{
	disconnect(&limited->connection);
	CHECK_EQ(ibv_destroy_srq(limited->srq), 0);
}

void cause_limit_event(struct limited *limited)
{
	struct endpoint *endpoint = limited->endpoint;
	struct ibv_sge sge = {.addr = (uintptr_t)endpoint->buffer,
			      .length = 64,
			      .lkey = endpoint->mr->lkey};
	struct ibv_recv_wr request = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *refused;
	CHECK_EQ(ibv_post_srq_recv(limited->srq, &request, &refused), 0);
	/* With one request in the queue, the limit is reached when that is taken. */
	struct ibv_srq_attr limit = {.srq_limit = 1};
	CHECK_EQ(ibv_modify_srq(limited->srq, &limit, IBV_SRQ_LIMIT), 0);
	CHECK_EQ(post_send(limited->connection.left, endpoint, 64, 64, 2), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(next_completion(endpoint->cq).status, IBV_WC_SUCCESS);
}

void acknowledge_limit_event(struct limited *limited, struct ibv_async_event *event)
{
	CHECK_EQ(event->event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(event->element.srq == limited->srq);
	ibv_ack_async_event(event);
}
