/* Memory windows of types 1 and 2B. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "endpoint.h"
#include "windows.h"

enum { LENGTH = 8192, FIRST = 1024, SIZE = 256, BIND = 40, WRITE = 50 };

/* An endpoint with two connected queue pairs, and a region that windows may be bound to and peers may
 * not access. */
struct bench {
	struct endpoint endpoint;
	struct connection connection;
	struct ibv_mr *mr;
	unsigned char bytes[LENGTH];
};

static void open_bench(struct bench *bench)
{
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	memset(bench->bytes, 0, LENGTH);
	open_endpoint(&bench->endpoint, LENGTH, 64);
	bench->connection = connect_to_self(&bench->endpoint, 16);
	CHECK((bench->mr = ibv_reg_mr(bench->endpoint.pd, bench->bytes, LENGTH, rights)) != NULL);
}

static void close_bench(struct bench *bench)
{
	CHECK_EQ(ibv_dereg_mr(bench->mr), 0);
	disconnect(&bench->connection);
	close_endpoint(&bench->endpoint);
}

static struct ibv_mw_bind_info part_of(struct bench *bench, unsigned rights)
{
	return (struct ibv_mw_bind_info){.mr = bench->mr,
					 .addr = (uintptr_t)bench->bytes + FIRST,
					 .length = SIZE,
					 .mw_access_flags = rights};
}

/* Binds a window of type 2 by a request, and returns how that ended. */
static enum ibv_wc_status bind_by_request(struct bench *bench, struct ibv_mw *mw, uint32_t rkey,
					  struct ibv_mw_bind_info to)
{
	struct ibv_send_wr *bad, request = {.wr_id = BIND, .opcode = IBV_WR_BIND_MW};
	request.send_flags = IBV_SEND_SIGNALED;
	request.bind_mw.mw = mw;
	request.bind_mw.rkey = rkey;
	request.bind_mw.bind_info = to;
	CHECK_EQ(ibv_post_send(bench->connection.right, &request, &bad), 0);
	struct ibv_wc completion = next_completion(bench->endpoint.cq);
	CHECK_EQ(completion.wr_id, BIND);
	if (completion.status == IBV_WC_SUCCESS)
		CHECK_EQ(completion.opcode, IBV_WC_BIND_MW);
	return completion.status;
}

/* Writes 8 bytes through a key at an offset of the region, and returns how that ended. */
static enum ibv_wc_status write_through(struct bench *bench, uint32_t rkey, uint64_t address)
{
	fill(bench->endpoint.buffer, 8, 5);
	CHECK_EQ(post_rdma(bench->connection.left, &bench->endpoint, IBV_WR_RDMA_WRITE, 0, 8, address,
			   rkey, WRITE),
		 0);
	struct ibv_wc completion = next_completion(bench->endpoint.cq);
	CHECK_EQ(completion.wr_id, WRITE);
	return completion.status;
}

static uint64_t at(struct bench *bench, size_t offset)
{
	return (uintptr_t)bench->bytes + offset;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attributes;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init), 0);
	return attributes.qp_state;
}

/* Connects the queue pairs again after a failure. */
static void reconnect(struct bench *bench)
{
	disconnect(&bench->connection);
	bench->connection = connect_to_self(&bench->endpoint, 16);
}

void capabilities(void)
{
	struct ibv_context *context = open_device();
	struct ibv_device_attr attributes;
	struct ibv_device_attr_ex all;
	CHECK_EQ(ibv_query_device(context, &attributes), 0);
	CHECK_EQ(ibv_query_device_ex(context, NULL, &all), 0);
	CHECK(attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	CHECK(attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	CHECK(!(attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A));
	CHECK_EQ(attributes.max_mw, 1 << 19);
	CHECK_EQ(all.max_dm_size, 1 << 20);
	CHECK_EQ(ibv_close_device(context), 0);
}

/* A binding has the next key, which the program sees at once; a binding of no bytes ends it. */
void type_1(void)
{
	struct bench bench;
	open_bench(&bench);
	struct ibv_mw *mw = ibv_alloc_mw(bench.endpoint.pd, IBV_MW_TYPE_1);
	CHECK(mw != NULL && mw->pd == bench.endpoint.pd && mw->type == IBV_MW_TYPE_1);
	uint32_t first = mw->rkey;
	struct ibv_mw_bind bind = {.wr_id = BIND, .send_flags = IBV_SEND_SIGNALED};
	bind.bind_info = part_of(&bench, IBV_ACCESS_REMOTE_WRITE);
	CHECK_EQ(ibv_bind_mw(bench.connection.right, mw, &bind), 0);
	CHECK_EQ(mw->rkey, ibv_inc_rkey(first));
	struct ibv_wc completion = next_completion(bench.endpoint.cq);
	CHECK_EQ(completion.wr_id, BIND);
	CHECK_EQ(completion.status, IBV_WC_SUCCESS);
	CHECK_EQ(completion.opcode, IBV_WC_BIND_MW);

	CHECK_EQ(write_through(&bench, mw->rkey, at(&bench, FIRST)), IBV_WC_SUCCESS);
	CHECK(is_filled(bench.bytes + FIRST, 8, 5));
	CHECK_EQ(write_through(&bench, mw->rkey, at(&bench, FIRST + SIZE - 8)), IBV_WC_SUCCESS);
	CHECK_EQ(write_through(&bench, mw->rkey, at(&bench, FIRST + SIZE - 7)), IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(bench.bytes[FIRST + SIZE], 0);
	reconnect(&bench);
	/* Another queue pair of the domain may use it; the key of before opens nothing. */
	CHECK_EQ(write_through(&bench, mw->rkey, at(&bench, FIRST)), IBV_WC_SUCCESS);
	CHECK_EQ(write_through(&bench, first, at(&bench, FIRST)), IBV_WC_REM_ACCESS_ERR);
	reconnect(&bench);

	/* Two bindings in a row: the second counts, and without a region it gives no right. */
	uint32_t before = mw->rkey;
	CHECK_EQ(ibv_bind_mw(bench.connection.right, mw, &bind), 0);
	bind.bind_info = (struct ibv_mw_bind_info){0};
	CHECK_EQ(ibv_bind_mw(bench.connection.right, mw, &bind), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(next_completion(bench.endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK_EQ(mw->rkey, ibv_inc_rkey(ibv_inc_rkey(before)));
	CHECK_EQ(write_through(&bench, mw->rkey, at(&bench, FIRST)), IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	close_bench(&bench);
}

/* Invalidation by either end frees the window for another binding, and its key opens nothing. */
void type_2(void)
{
	struct bench bench;
	open_bench(&bench);
	struct ibv_send_wr *bad;
	struct ibv_recv_wr *bad_recv, receive = {.wr_id = 7};
	struct ibv_mw *mw = ibv_alloc_mw(bench.endpoint.pd, IBV_MW_TYPE_2);
	CHECK(mw != NULL && mw->type == IBV_MW_TYPE_2);
	struct ibv_mw_bind_info to = part_of(&bench, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	for (int round = 0; round < 300; round++) {
		uint32_t key = ibv_inc_rkey(mw->rkey);
		CHECK_EQ(bind_by_request(&bench, mw, key, to), IBV_WC_SUCCESS);
		mw->rkey = key;
		CHECK_EQ(write_through(&bench, key, at(&bench, FIRST)), IBV_WC_SUCCESS);
		struct ibv_send_wr shut = {.wr_id = 8, .send_flags = IBV_SEND_SIGNALED};
		shut.invalidate_rkey = key;
		if (round % 2) {
			shut.opcode = IBV_WR_LOCAL_INV;
			CHECK_EQ(ibv_post_send(bench.connection.right, &shut, &bad), 0);
			struct ibv_wc completion = next_completion(bench.endpoint.cq);
			CHECK_EQ(completion.status, IBV_WC_SUCCESS);
			CHECK_EQ(completion.opcode, IBV_WC_LOCAL_INV);
			continue;
		}
		shut.opcode = IBV_WR_SEND_WITH_INV;
		CHECK_EQ(ibv_post_recv(bench.connection.right, &receive, &bad_recv), 0);
		CHECK_EQ(ibv_post_send(bench.connection.left, &shut, &bad), 0);
		for (int i = 0; i < 2; i++) {
			struct ibv_wc completion = next_completion(bench.endpoint.cq);
			CHECK_EQ(completion.status, IBV_WC_SUCCESS);
			if (completion.wr_id == 7) {
				CHECK(completion.wc_flags & IBV_WC_WITH_INV);
				CHECK_EQ(completion.invalidated_rkey, key);
			}
		}
	}
	CHECK_EQ(write_through(&bench, mw->rkey, at(&bench, FIRST)), IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	close_bench(&bench);
}

/* The same through a queue pair of ibv_create_qp_ex, zero-based. */
void extended(void)
{
	struct bench bench;
	open_bench(&bench);
	struct ibv_qp_init_attr_ex attributes = {
		.send_cq = bench.endpoint.cq,
		.recv_cq = bench.endpoint.cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = bench.endpoint.pd,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(bench.endpoint.context, &attributes);
	CHECK(qp != NULL);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_qp *left = bench.connection.left;
	CHECK_EQ(ibv_modify_qp(left, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, IBV_QP_STATE), 0);
	connect_qp(left, &bench.endpoint, &bench.endpoint.gid, qp->qp_num);
	connect_qp(qp, &bench.endpoint, &bench.endpoint.gid, left->qp_num);

	struct ibv_mw *mw = ibv_alloc_mw(bench.endpoint.pd, IBV_MW_TYPE_2);
	CHECK(mw != NULL);
	struct ibv_mw_bind_info to =
		part_of(&bench, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
	uint32_t keys[] = {ibv_inc_rkey(mw->rkey), ibv_inc_rkey(ibv_inc_rkey(mw->rkey))};
	/* In one list: bound, invalidated, bound again under the next key. */
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, mw, keys[0], &to);
	ex->wr_id = 2;
	ibv_wr_local_inv(ex, keys[0]);
	ex->wr_id = 3;
	ibv_wr_bind_mw(ex, mw, keys[1], &to);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	for (uint64_t id = 1; id <= 3; id++) {
		struct ibv_wc completion = next_completion(bench.endpoint.cq);
		CHECK_EQ(completion.wr_id, id);
		CHECK_EQ(completion.status, IBV_WC_SUCCESS);
		CHECK_EQ(completion.opcode, id == 2 ? IBV_WC_LOCAL_INV : IBV_WC_BIND_MW);
	}
	CHECK_EQ(write_through(&bench, keys[1], SIZE - 8), IBV_WC_SUCCESS);
	CHECK(is_filled(bench.bytes + FIRST + SIZE - 8, 8, 5));
	CHECK_EQ(write_through(&bench, keys[0], 0), IBV_WC_REM_ACCESS_ERR);
	/* A request without a window is refused with the whole list. */
	ibv_wr_start(ex);
	ex->wr_flags = 0;
	ibv_wr_bind_mw(ex, NULL, keys[1], &to);
	CHECK_EQ(ibv_wr_complete(ex), EINVAL);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_bench(&bench);
}

/* What is not allowed: by a return value where the call can tell, and otherwise by a completion. */
void refused(void)
{
	struct bench bench;
	open_bench(&bench);
	struct ibv_pd *pd = bench.endpoint.pd;
	errno = 0;
	CHECK(ibv_alloc_mw(pd, 3) == NULL);
	CHECK_EQ(errno, EINVAL);
	struct ibv_mw *one = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(one != NULL && two != NULL && one->rkey >> 8 != two->rkey >> 8);

	struct ibv_mw_bind bind = {.bind_info = part_of(&bench, IBV_ACCESS_REMOTE_WRITE)};
	CHECK_EQ(ibv_bind_mw(bench.connection.right, two, &bind), EINVAL);
	uint32_t key = one->rkey;
	bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	CHECK_EQ(ibv_bind_mw(bench.connection.right, one, &bind), EINVAL);
	bind.bind_info.mw_access_flags = 1 << 18;
	CHECK_EQ(ibv_bind_mw(bench.connection.right, one, &bind), EINVAL);
	CHECK_EQ(one->rkey, key);
	struct ibv_send_wr *bad, request = {.opcode = IBV_WR_BIND_MW};
	request.bind_mw.rkey = ibv_inc_rkey(key);
	CHECK_EQ(ibv_post_send(bench.connection.right, &request, &bad), EINVAL);
	CHECK(bad == &request);
	request.bind_mw.mw = two;
	request.bind_mw.bind_info.length = 1;
	CHECK_EQ(ibv_post_send(bench.connection.right, &request, &bad), EINVAL);

	/* A region without the right, one byte too many, nothing, and a window that is bound. */
	struct ibv_mw_bind_info wrong[4];
	for (int i = 0; i < 4; i++)
		wrong[i] = part_of(&bench, IBV_ACCESS_REMOTE_WRITE);
	wrong[0].mr = bench.endpoint.mr;
	wrong[0].addr = (uintptr_t)bench.endpoint.buffer;
	wrong[1].length = LENGTH - FIRST + 1;
	wrong[2].length = 0;
	for (int i = 0; i < 4; i++) {
		uint32_t next = ibv_inc_rkey(two->rkey);
		if (i == 3)
			CHECK_EQ(bind_by_request(&bench, two, two->rkey, wrong[3]), IBV_WC_SUCCESS);
		CHECK_EQ(bind_by_request(&bench, two, next, wrong[i]), IBV_WC_MW_BIND_ERR);
		CHECK_EQ(state_of(bench.connection.right), IBV_QPS_ERR);
		CHECK_EQ(state_of(bench.connection.left), IBV_QPS_RTS);
		reconnect(&bench);
		CHECK_EQ(write_through(&bench, next, at(&bench, FIRST)), IBV_WC_REM_ACCESS_ERR);
		reconnect(&bench);
	}
	CHECK_EQ(ibv_dealloc_mw(one), 0);
	CHECK_EQ(ibv_dealloc_mw(two), 0);
	close_bench(&bench);
}

/* A region with a bound window stays, a domain with a window does, and a queue pair frees its windows. */
void owners(void)
{
	struct bench bench;
	open_bench(&bench);
	struct ibv_pd *pd = ibv_alloc_pd(bench.endpoint.context);
	struct ibv_mw *idle = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	CHECK(idle != NULL);
	CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
	CHECK_EQ(ibv_dealloc_mw(idle), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);

	struct ibv_mw *mw = ibv_alloc_mw(bench.endpoint.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info to = part_of(&bench, IBV_ACCESS_REMOTE_WRITE);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	CHECK_EQ(bind_by_request(&bench, mw, key, to), IBV_WC_SUCCESS);
	CHECK_EQ(ibv_dereg_mr(bench.mr), EBUSY);
	errno = 0;
	CHECK_EQ(ibv_rereg_mr(bench.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      IBV_ACCESS_LOCAL_WRITE),
		 IBV_REREG_MR_ERR_CMD);
	CHECK_EQ(errno, EBUSY);
	CHECK_EQ(write_through(&bench, key, at(&bench, FIRST)), IBV_WC_SUCCESS);
	/* The queue pairs that come now are others: the window is free, and may be bound by them. */
	reconnect(&bench);
	CHECK_EQ(bind_by_request(&bench, mw, ibv_inc_rkey(key), to), IBV_WC_SUCCESS);
	CHECK_EQ(write_through(&bench, ibv_inc_rkey(key), at(&bench, FIRST)), IBV_WC_SUCCESS);
	CHECK_EQ(write_through(&bench, key, at(&bench, FIRST)), IBV_WC_REM_ACCESS_ERR);
	/* A window takes its binding along. */
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	close_bench(&bench);
}
