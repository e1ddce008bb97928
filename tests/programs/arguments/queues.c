/* Completion queues, their channels, and shared receive queues. */
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

void completion_queues(void)
{
	struct endpoint endpoint;
	struct ibv_device_attr device;
	struct ibv_wc completions[4];
	open_endpoint(&endpoint, 3 * 4096, 16);
	struct ibv_context *context = endpoint.context;
	CHECK_EQ(ibv_query_device(context, &device), 0);

	CHECK_NULL(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	CHECK_NULL(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
	CHECK_NULL(ibv_create_cq(context, INT_MIN, NULL, NULL, 0), EINVAL);
	CHECK_NULL(ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0), EINVAL);
	CHECK_NULL(ibv_create_cq(context, INT_MAX, NULL, NULL, 0), EINVAL);
	CHECK_NULL(ibv_create_cq(context, 4, NULL, NULL, context->num_comp_vectors), EINVAL);
	CHECK_NULL(ibv_create_cq(context, 4, NULL, NULL, -1), EINVAL);

	/* As mlx5 the next power of two, less one; and as hns at least 64, less one. */
	const int counts[][2] = {{1, 63},   {63, 63},   {64, 127},
				 {127, 127}, {128, 255}, {device.max_cqe, device.max_cqe}};
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct ibv_cq *cq = ibv_create_cq(context, counts[i][0], NULL, NULL, 0);
		CHECK(cq);
		CHECK_EQ(cq->cqe, counts[i][1]);
		CHECK_EQ(ibv_resize_cq(cq, 900), 0);
		CHECK_EQ(cq->cqe, 1023);
		CHECK_EQ(ibv_resize_cq(cq, counts[i][0]), 0);
		CHECK_EQ(cq->cqe, counts[i][1]);
		CHECK_EQ(ibv_destroy_cq(cq), 0);
	}

	struct ibv_cq_init_attr_ex extended = {.cqe = 4, .comp_mask = 1u << 31};
	CHECK_NULL(ibv_create_cq_ex(context, &extended), EINVAL);
	extended = (struct ibv_cq_init_attr_ex){.cqe = 4, .wc_flags = 1ull << 40};
	CHECK_NULL(ibv_create_cq_ex(context, &extended), EOPNOTSUPP);
	extended = (struct ibv_cq_init_attr_ex){.cqe = 0};
	CHECK_NULL(ibv_create_cq_ex(context, &extended), EINVAL);
	extended = (struct ibv_cq_init_attr_ex){.cqe = 4,
						.comp_vector = context->num_comp_vectors};
	CHECK_NULL(ibv_create_cq_ex(context, &extended), EINVAL);

	CHECK_EQ(ibv_poll_cq(endpoint.cq, 0, completions), 0);
	CHECK(ibv_poll_cq(endpoint.cq, -1, completions) <= 0);
	CHECK_CODE(ibv_resize_cq(endpoint.cq, 0), EINVAL);
	CHECK_CODE(ibv_resize_cq(endpoint.cq, -1), EINVAL);
	CHECK_CODE(ibv_resize_cq(endpoint.cq, device.max_cqe + 1), EINVAL);
	CHECK_EQ(ibv_resize_cq(endpoint.cq, 32), 0);
	CHECK(endpoint.cq->cqe >= 32);

	/* Too small for what is inside: four flushed requests, although the queue would hold them. */
	struct ibv_qp *qp = make_qp(&endpoint, 8);
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	CHECK_EQ(to_init(qp), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(post_recv(qp, &endpoint, 0, 64, i), 0);
	CHECK_EQ(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
	CHECK_CODE(ibv_resize_cq(endpoint.cq, 2), EINVAL);
	CHECK_EQ(ibv_poll_cq(endpoint.cq, 4, completions), 4);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(completions[i].status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(completions[i].wr_id, i);
	}
	CHECK_EQ(ibv_resize_cq(endpoint.cq, 2), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);

	/* A channel of which the program does not want to wait. */
	struct ibv_cq *cq;
	void *cq_context;
	CHECK_EQ(fcntl(endpoint.channel->fd, F_SETFL,
		       fcntl(endpoint.channel->fd, F_GETFL) | O_NONBLOCK),
		 0);
	while (ibv_get_cq_event(endpoint.channel, &cq, &cq_context) == 0)
		ibv_ack_cq_events(cq, 1);
	CHECK_EQ(errno, EAGAIN);
	close_endpoint(&endpoint);
}

/* A program that asks for one request and one completion, and is late to poll. */
void small_queues(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 16);
	struct endpoint other = endpoint;
	other.cq = ibv_create_cq(endpoint.context, 1, NULL, NULL, 0);
	CHECK(other.cq);
	int count = other.cq->cqe;
	CHECK(count >= 63);
	struct connection connection = connect_to_self(&other, 1);
	struct ibv_qp_attr attributes;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(connection.left, &attributes, IBV_QP_CAP, &init), 0);
	CHECK_EQ(attributes.cap.max_send_wr, 64);
	for (int i = 0; i < count; i++)
		CHECK_EQ(post_rdma(connection.left, &other, IBV_WR_RDMA_WRITE, 0, 64,
				   (uintptr_t)other.buffer + 4096, other.mr->rkey, i),
			 0);
	for (int i = 0; i < count; i++) {
		struct ibv_wc completion = next_completion(other.cq);
		CHECK_EQ(completion.status, IBV_WC_SUCCESS);
		CHECK_EQ(completion.wr_id, i);
	}
	disconnect(&connection);
	CHECK_EQ(ibv_destroy_cq(other.cq), 0);
	close_endpoint(&endpoint);
}

void shared_receive_queues(void)
{
	struct endpoint endpoint;
	struct ibv_device_attr device;
	open_endpoint(&endpoint, 4096, 16);
	CHECK_EQ(ibv_query_device(endpoint.context, &device), 0);
	struct ibv_srq_init_attr attributes = {.attr = {.max_wr = 0, .max_sge = 1}};
	CHECK_NULL(ibv_create_srq(endpoint.pd, &attributes), EINVAL);
	attributes.attr.max_wr = device.max_srq_wr + 1;
	CHECK_NULL(ibv_create_srq(endpoint.pd, &attributes), EINVAL);
	attributes.attr = (struct ibv_srq_attr){.max_wr = 4, .max_sge = device.max_srq_sge + 1};
	CHECK_NULL(ibv_create_srq(endpoint.pd, &attributes), EINVAL);
	attributes.attr = (struct ibv_srq_attr){.max_wr = UINT32_MAX, .max_sge = UINT32_MAX};
	CHECK_NULL(ibv_create_srq(endpoint.pd, &attributes), EINVAL);
	attributes.attr = (struct ibv_srq_attr){.max_wr = 4, .max_sge = 0};
	struct ibv_srq *srq = ibv_create_srq(endpoint.pd, &attributes);
	CHECK(srq);
	CHECK(attributes.attr.max_wr >= 4 && attributes.attr.max_sge >= 1);

	struct ibv_srq_attr change = {.srq_limit = attributes.attr.max_wr + 1};
	CHECK_CODE(ibv_modify_srq(srq, &change, IBV_SRQ_LIMIT), EINVAL);
	change = (struct ibv_srq_attr){.max_wr = device.max_srq_wr + 1};
	CHECK_CODE(ibv_modify_srq(srq, &change, IBV_SRQ_MAX_WR), EINVAL);
	CHECK_EQ(ibv_modify_srq(srq, &change, 4), 0);
	change = (struct ibv_srq_attr){.max_wr = 0};
	CHECK_CODE(ibv_modify_srq(srq, &change, IBV_SRQ_MAX_WR), EINVAL);
	CHECK_EQ(ibv_query_srq(srq, &change), 0);
	CHECK_EQ(change.max_wr, attributes.attr.max_wr);

	struct ibv_sge pieces[64];
	for (int i = 0; i < 64; i++)
		pieces[i] = (struct ibv_sge){.addr = (uintptr_t)endpoint.buffer,
					     .length = 1,
					     .lkey = endpoint.mr->lkey};
	struct ibv_recv_wr request = {.sg_list = pieces, .num_sge = change.max_sge + 1};
	struct ibv_recv_wr *refused = NULL;
	CHECK_CODE(ibv_post_srq_recv(srq, &request, &refused), EINVAL);
	CHECK(refused == &request);
	request.num_sge = 1;
	for (uint32_t i = 0; i < change.max_wr; i++)
		CHECK_EQ(ibv_post_srq_recv(srq, &request, &refused), 0);
	refused = NULL;
	CHECK_CODE(ibv_post_srq_recv(srq, &request, &refused), ENOMEM);
	CHECK(refused == &request);
	CHECK_EQ(ibv_destroy_srq(srq), 0);

	struct ibv_srq_init_attr_ex extended = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_TM,
		.pd = endpoint.pd,
	};
	CHECK_NULL(ibv_create_srq_ex(endpoint.context, &extended), EOPNOTSUPP);
	close_endpoint(&endpoint);
}
