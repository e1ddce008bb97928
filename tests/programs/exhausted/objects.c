/* Memory runs out: calls fail with ENOMEM or succeed, and never end the process. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "exhausted.h"
#include "check.h"
#include "endpoint.h"

#define DEPTH 64
#define LENGTH 200
/* Allocations that live after the first time and are no leak. */
#define MAX_GROWTH 96

static unsigned char memory[2 * 4096];

bool is_made(const void *object)
{
	if (!object)
		CHECK_EQ(errno, ENOMEM);
	return object;
}

/* Returns true if a call succeeded; false if memory was the reason that it did not. */
static bool is_done(int result)
{
	CHECK(result == 0 || result == ENOMEM);
	return result == 0;
}

bool make_objects(struct objects *made, struct ibv_context *context,
		  const struct endpoint *endpoint)
{
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct ibv_ah_attr ah = {.port_num = 1,
				 .is_global = 1,
				 .grh = {.dgid = endpoint->gid,
					 .sgid_index = endpoint->gid_index,
					 .hop_limit = 64}};
	*made = (struct objects){0};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	if (!is_made(made->pd = ibv_alloc_pd(context)) ||
	    !is_made(made->channel = ibv_create_comp_channel(context)) ||
	    !is_made(made->cq = ibv_create_cq(context, 8 * DEPTH, NULL, made->channel, 0)) ||
	    !is_made(made->mr = ibv_reg_mr(made->pd, memory, sizeof(memory), access)) ||
	    !is_made(made->srq = ibv_create_srq(made->pd, &shared)) ||
	    !is_made(made->ah = ibv_create_ah(made->pd, &ah)) ||
	    !is_made(made->mw = ibv_alloc_mw(made->pd, IBV_MW_TYPE_2)))
		return false;
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = made->cq,
			.recv_cq = made->cq,
			.srq = i ? made->srq : NULL,
			.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1,
				.max_recv_sge = 1, .max_inline_data = LENGTH},
			.qp_type = IBV_QPT_RC,
		};
		if (!is_made(made->qps[i] = ibv_create_qp(made->pd, &init)))
			return false;
	}
	return true;
}

void destroy_objects(struct objects *made)
{
	for (int i = 0; i < 2; i++)
		CHECK(!made->qps[i] || !ibv_destroy_qp(made->qps[i]));
	CHECK(!made->mw || !ibv_dealloc_mw(made->mw));
	CHECK(!made->ah || !ibv_destroy_ah(made->ah));
	CHECK(!made->srq || !ibv_destroy_srq(made->srq));
	CHECK(!made->mr || !ibv_dereg_mr(made->mr));
	CHECK(!made->cq || !ibv_destroy_cq(made->cq));
	CHECK(!made->channel || !ibv_destroy_comp_channel(made->channel));
	CHECK(!made->pd || !ibv_dealloc_pd(made->pd));
}

int exchange(struct objects *made, const struct endpoint *endpoint)
{
	int refusals = 0, awaited = 0;
	if (!is_done(to_init(made->qps[0])) || !is_done(to_init(made->qps[1])))
		return 1;
	for (int i = 0; i < 2; i++)
		if (!is_done(to_rtr(made->qps[i], endpoint, &endpoint->gid, made->qps[!i]->qp_num)) ||
		    !is_done(to_rts(made->qps[i], 14, 7)))
			return 1;
	for (int i = 0; i < DEPTH / 2; i++) {
		struct ibv_sge sge = {(uintptr_t)memory, LENGTH, made->mr->lkey};
		struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
		struct ibv_send_wr send = {.sg_list = &sge,
					   .num_sge = 1,
					   .opcode = IBV_WR_SEND,
					   .send_flags = IBV_SEND_SIGNALED},
				   *bad_send;
		int results[] = {ibv_post_recv(made->qps[0], &receive, &bad_receive),
				 ibv_post_srq_recv(made->srq, &receive, &bad_receive)};
		for (int to = 0; to < 2; to++) {
			if (!results[to]) {
				send.send_flags = IBV_SEND_SIGNALED | (to ? IBV_SEND_INLINE : 0);
				results[to] = ibv_post_send(made->qps[!to], &send, &bad_send);
				awaited += results[to] ? 0 : 2;
			}
			CHECK(results[to] == 0 || results[to] == ENOMEM);
			refusals += results[to] != 0;
		}
	}
	for (; awaited > 0; awaited--)
		CHECK_EQ(next_completion(made->cq).status, IBV_WC_SUCCESS);
	return refusals;
}

/* With the allocations in turn, the first 64 and then ever fewer, as the one that fails, and as the first of all
 * that fail. */
void failing_allocations(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 16);
	struct objects made;
	long live = 0;
	for (int is_lasting = 0; is_lasting < 2; is_lasting++) {
		bool has_failed = true, was_refused = false;
		long n = 0;
		for (; has_failed; n += 1 + n / 64) {
			fail_allocations_from(n, is_lasting);
			bool is_whole = make_objects(&made, endpoint.context, &endpoint);
			int refusals = is_whole ? exchange(&made, &endpoint) : 0;
			has_failed = stop_failing();
			was_refused |= !is_whole || refusals;
			CHECK(has_failed || (is_whole && !refusals));
			destroy_objects(&made);
			CHECK(make_objects(&made, endpoint.context, &endpoint));
			CHECK_EQ(exchange(&made, &endpoint), 0);
			destroy_objects(&made);
			live = live ? live : live_allocations();
		}
		CHECK(n > 30);
		CHECK(was_refused || !is_lasting);
	}
	/* Tables may have grown since the first time. */
	CHECK(live_allocations() <= live + MAX_GROWTH);
	close_endpoint(&endpoint);
}

/* Once an allocation has failed no object is made, though the reserve has memory for it. */
void creations_without_memory(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 16);
	struct ibv_context *context = endpoint.context;
	struct ibv_pd *pd = endpoint.pd;
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct ibv_srq_init_attr_ex shared_ex = {
		.attr = shared.attr, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd};
	struct ibv_ah_attr ah = {.port_num = 1,
				 .is_global = 1,
				 .grh = {.dgid = endpoint.gid, .sgid_index = endpoint.gid_index}};
	struct ibv_td_init_attr thread_domain = {0};
	struct ibv_parent_domain_init_attr parent_domain = {.pd = pd};
	struct ibv_alloc_dm_attr device_memory = {.length = 64};
	struct ibv_cq_init_attr_ex queue = {.cqe = 16};
	struct ibv_qp_init_attr pair = {.send_cq = endpoint.cq,
					.recv_cq = endpoint.cq,
					.cap = {4, 4, 1, 1, 0},
					.qp_type = IBV_QPT_RC};
	fail_allocations_from(0, true);
	struct ibv_pd *first = ibv_alloc_pd(context);
	CHECK_NULL(ibv_alloc_pd(context), ENOMEM);
	CHECK_NULL(ibv_create_comp_channel(context), ENOMEM);
	CHECK_NULL(ibv_create_cq(context, 16, NULL, NULL, 0), ENOMEM);
	CHECK_NULL(ibv_create_cq_ex(context, &queue), ENOMEM);
	CHECK_NULL(ibv_reg_mr(pd, memory, sizeof(memory), 0), ENOMEM);
	CHECK_NULL(ibv_create_srq(pd, &shared), ENOMEM);
	CHECK_NULL(ibv_create_srq_ex(context, &shared_ex), ENOMEM);
	CHECK_NULL(ibv_create_ah(pd, &ah), ENOMEM);
	CHECK_NULL(ibv_alloc_mw(pd, IBV_MW_TYPE_2), ENOMEM);
	CHECK_NULL(ibv_create_qp(pd, &pair), ENOMEM);
	CHECK_NULL(ibv_alloc_td(context, &thread_domain), ENOMEM);
	CHECK_NULL(ibv_alloc_parent_domain(context, &parent_domain), ENOMEM);
	CHECK_NULL(ibv_alloc_dm(context, &device_memory), ENOMEM);
	CHECK_MINUS_ONE(open("/dev/infiniband/rdma_cm", O_RDWR), ENOMEM);
	CHECK(stop_failing());
	CHECK(!first || !ibv_dealloc_pd(first));
	close_endpoint(&endpoint);
}

/* Objects and requests until the address space is used up. */
void used_up_memory(void)
{
	enum { RECEIVES, REGIONS, QUEUE_PAIRS, QUEUES, ADDRESSES, KINDS };
	for (int kind = 0; kind < KINDS; kind++) {
		int child = fork();
		if (child) {
			expect_success_of(child);
			continue;
		}
		struct endpoint endpoint;
		open_endpoint(&endpoint, 4096, 16);
		struct ibv_qp *qp = make_qp(&endpoint, 1 << 20);
		CHECK_EQ(to_init(qp), 0);
		struct ibv_ah_attr ah = {.port_num = 1,
					 .is_global = 1,
					 .grh = {.dgid = endpoint.gid,
						 .sgid_index = endpoint.gid_index,
						 .hop_limit = 64}};
		limit_address_space(8 << 20);
		int result = 0;
		long count = 0;
		for (; result == 0 && count < 1 << 20; count++) {
			errno = 0;
			switch (kind) {
			case RECEIVES:
				result = post_recv(qp, &endpoint, 0, 64, count);
				break;
			case REGIONS:
				result = ibv_reg_mr(endpoint.pd, memory, 4096, 0) ? 0 : errno;
				break;
			case QUEUE_PAIRS: {
				struct ibv_qp_init_attr init = {
					.send_cq = endpoint.cq,
					.recv_cq = endpoint.cq,
					.cap = {16, 16, 1, 1, 0},
					.qp_type = IBV_QPT_RC,
				};
				result = ibv_create_qp(endpoint.pd, &init) ? 0 : errno;
				break;
			}
			case QUEUES:
				result = ibv_create_cq(endpoint.context, 1000, NULL, NULL, 0) ? 0 : errno;
				break;
			default:
				result = ibv_create_ah(endpoint.pd, &ah) ? 0 : errno;
			}
		}
		CHECK_EQ(result, ENOMEM);
		CHECK(count > 10);
		_exit(0);
	}
}
