/* ATOMIC WRITE and FLUSH, as programs of libibverbs use them. */
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "check.h"
#include "endpoint.h"

/* What rdma-core 44 does not name yet; later versions have it in enumerations. */
#define FLUSH_GLOBAL 1
#define FLUSH_PERSISTENT 2
#define FLUSH_RANGE 0
#define FLUSH_MR 1
#define ACCESS_FLUSH_GLOBAL (1 << 8)
#define ACCESS_FLUSH_PERSISTENT (1 << 9)
#define QP_EX_WITH_FLUSH (1 << 11)
#define WC_FLUSH 8
#define DEVICE_FLUSH_GLOBAL (1ULL << 38)
#define DEVICE_FLUSH_PERSISTENT (1ULL << 39)
#define DEVICE_ATOMIC_WRITE (1ULL << 40)

#define WRITE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define LENGTH 4096

typedef void flush_function(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);

/* Calls wr_flush, which is behind wr_atomic_write: ibv_wr_flush of rdma-core 45. */
static void wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t at, size_t length, uint8_t type,
		     uint8_t level)
{
	flush_function *flush;
	size_t offset = offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(flush);
	memcpy(&flush, (char *)qp + offset, sizeof(flush));
	CHECK(flush);
	flush(qp, rkey, at, length, type, level);
}

/* Two queue pairs, of which one posts, and the region of the other. */
struct loop {
	struct endpoint endpoint;
	struct ibv_mr *region;
	struct ibv_qp *qp, *peer;
	struct ibv_qp_ex *builder;
};

static struct ibv_qp *make_extended(struct endpoint *endpoint, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex attributes = {
		.send_cq = endpoint->cq,
		.recv_cq = endpoint->cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = type,
		.pd = endpoint->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = ops,
	};
	return ibv_create_qp_ex(endpoint->context, &attributes);
}

static struct loop open_loop(unsigned qp_access, unsigned region_access)
{
	struct loop loop;
	open_endpoint(&loop.endpoint, LENGTH, 16);
	loop.region =
		ibv_reg_mr(loop.endpoint.pd, loop.endpoint.buffer, LENGTH, region_access);
	CHECK(loop.region);
	loop.qp = make_extended(&loop.endpoint, IBV_QPT_RC,
				IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE |
					QP_EX_WITH_FLUSH);
	CHECK(loop.qp);
	loop.builder = ibv_qp_to_qp_ex(loop.qp);
	CHECK(loop.builder);
	loop.peer = make_qp(&loop.endpoint, 4);
	connect_qp(loop.qp, &loop.endpoint, &loop.endpoint.gid, loop.peer->qp_num);
	connect_qp(loop.peer, &loop.endpoint, &loop.endpoint.gid, loop.qp->qp_num);
	struct ibv_qp_attr access = {.qp_access_flags = qp_access};
	CHECK_EQ(ibv_modify_qp(loop.peer, &access, IBV_QP_ACCESS_FLAGS), 0);
	loop.builder->wr_flags = IBV_SEND_SIGNALED;
	return loop;
}

static void close_loop(struct loop *loop)
{
	CHECK_EQ(ibv_destroy_qp(loop->qp), 0);
	CHECK_EQ(ibv_destroy_qp(loop->peer), 0);
	CHECK_EQ(ibv_dereg_mr(loop->region), 0);
	close_endpoint(&loop->endpoint);
}

static uint64_t at(const struct loop *loop, size_t offset)
{
	return (uintptr_t)loop->endpoint.buffer + offset;
}

static void expect(struct loop *loop, uint64_t id, int opcode)
{
	struct ibv_wc completion = next_completion(loop->endpoint.cq);
	CHECK_EQ(completion.status, IBV_WC_SUCCESS);
	CHECK_EQ(completion.wr_id, id);
	CHECK_EQ(completion.opcode, opcode);
}

static void capabilities(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, LENGTH, 4);
	struct ibv_device_attr_ex attributes;
	CHECK_EQ(ibv_query_device_ex(endpoint.context, NULL, &attributes), 0);
	uint64_t flags = attributes.device_cap_flags_ex;
	CHECK(flags & DEVICE_FLUSH_GLOBAL);
	CHECK(flags & DEVICE_ATOMIC_WRITE);
	CHECK(!(flags & DEVICE_FLUSH_PERSISTENT));
	/* Only reliable connections have them. */
	static const uint64_t ops[] = {QP_EX_WITH_FLUSH, IBV_QP_EX_WITH_ATOMIC_WRITE};
	for (int i = 0; i < 2; i++) {
		CHECK_NULL(make_extended(&endpoint, IBV_QPT_UC, ops[i]), EOPNOTSUPP);
		CHECK_NULL(make_extended(&endpoint, IBV_QPT_UD, ops[i]), EOPNOTSUPP);
	}
	/* Ordinary memory does not survive a loss of power. */
	CHECK_NULL(ibv_reg_mr(endpoint.pd, endpoint.buffer, LENGTH,
			      WRITE | ACCESS_FLUSH_PERSISTENT),
		   EINVAL);
	close_endpoint(&endpoint);
}

static void atomic_write(void)
{
	struct loop loop = open_loop(IBV_ACCESS_REMOTE_WRITE, WRITE);
	unsigned char *buffer = loop.endpoint.buffer;
	memset(buffer, 0xee, LENGTH);
	for (unsigned i = 0; i < 8; i++) {
		/* The word may lie anywhere here, and need not stay. */
		unsigned char word[9];
		fill(word, sizeof(word), i);
		loop.builder->wr_id = i;
		ibv_wr_start(loop.builder);
		ibv_wr_atomic_write(loop.builder, loop.region->rkey, at(&loop, 64 + 8 * i),
				    word + 1);
		unsigned char expected[8];
		memcpy(expected, word + 1, 8);
		memset(word, 0, sizeof(word));
		CHECK_EQ(ibv_wr_complete(loop.builder), 0);
		expect(&loop, i, IBV_WC_ATOMIC_WRITE);
		CHECK(!memcmp(buffer + 64 + 8 * i, expected, 8));
	}
	for (int i = 0; i < 64; i++)
		CHECK_EQ(buffer[i], 0xee);
	CHECK_EQ(buffer[128], 0xee);
	close_loop(&loop);

	/* The responder checks the alignment. */
	loop = open_loop(IBV_ACCESS_REMOTE_WRITE, WRITE);
	uint64_t word = 1;
	ibv_wr_start(loop.builder);
	ibv_wr_atomic_write(loop.builder, loop.region->rkey, at(&loop, 4), &word);
	CHECK_EQ(ibv_wr_complete(loop.builder), 0);
	CHECK_EQ(next_completion(loop.endpoint.cq).status, IBV_WC_REM_INV_REQ_ERR);
	CHECK_EQ(loop.endpoint.buffer[4], 0);
	close_loop(&loop);
}

static void flush(void)
{
	struct loop loop = open_loop(IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL,
				     WRITE | ACCESS_FLUSH_GLOBAL);
	uint32_t rkey = loop.region->rkey;
	/* Refused as a whole: another placement, another level, a length beyond a message. */
	static const struct {
		size_t length;
		uint8_t type, level;
	} wrong[] = {{64, 4, FLUSH_RANGE}, {64, FLUSH_GLOBAL, 2}, {1ULL << 32, FLUSH_GLOBAL, 0}};
	for (int i = 0; i < 3; i++) {
		ibv_wr_start(loop.builder);
		wr_flush(loop.builder, rkey, at(&loop, 0), wrong[i].length, wrong[i].type,
			 wrong[i].level);
		CHECK_CODE(ibv_wr_complete(loop.builder), EINVAL);
	}
	fill(loop.endpoint.buffer, 256, 7);
	ibv_wr_start(loop.builder);
	loop.builder->wr_id = 1;
	ibv_wr_rdma_write(loop.builder, rkey, at(&loop, 1024));
	ibv_wr_set_sge(loop.builder, loop.endpoint.mr->lkey, at(&loop, 0), 256);
	loop.builder->wr_id = 2;
	wr_flush(loop.builder, rkey, at(&loop, 1024), 256, FLUSH_GLOBAL, FLUSH_RANGE);
	loop.builder->wr_id = 3;
	/* Of a whole region; address and length mean nothing. */
	wr_flush(loop.builder, rkey, 1, 12345678, FLUSH_GLOBAL, FLUSH_MR);
	CHECK_EQ(ibv_wr_complete(loop.builder), 0);
	expect(&loop, 1, IBV_WC_RDMA_WRITE);
	expect(&loop, 2, WC_FLUSH);
	CHECK(is_filled(loop.endpoint.buffer + 1024, 256, 7));
	expect(&loop, 3, WC_FLUSH);
	close_loop(&loop);
}

static void rights(void)
{
	unsigned both = ACCESS_FLUSH_GLOBAL | ACCESS_FLUSH_PERSISTENT;
	static const struct {
		uint8_t type;
		bool qp, region;
		int status;
	} cases[] = {
		{FLUSH_GLOBAL, true, true, IBV_WC_SUCCESS},
		{FLUSH_GLOBAL, true, false, IBV_WC_REM_ACCESS_ERR},
		{FLUSH_GLOBAL, false, true, IBV_WC_REM_INV_REQ_ERR},
		{FLUSH_PERSISTENT, true, true, IBV_WC_REM_ACCESS_ERR},
		{FLUSH_PERSISTENT, false, true, IBV_WC_REM_INV_REQ_ERR},
		{FLUSH_GLOBAL | FLUSH_PERSISTENT, true, true, IBV_WC_REM_ACCESS_ERR},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct loop loop = open_loop(IBV_ACCESS_REMOTE_WRITE | (cases[i].qp ? both : 0),
					     WRITE | (cases[i].region ? ACCESS_FLUSH_GLOBAL : 0));
		ibv_wr_start(loop.builder);
		wr_flush(loop.builder, loop.region->rkey, at(&loop, 0), 8, cases[i].type,
			 FLUSH_RANGE);
		CHECK_EQ(ibv_wr_complete(loop.builder), 0);
		CHECK_EQ(next_completion(loop.endpoint.cq).status, cases[i].status);
		close_loop(&loop);
	}
}

static const struct scenario scenarios[] = {
	{"capabilities", capabilities},
	{"atomic-write", atomic_write},
	{"flush", flush},
	{"rights", rights},
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof(*scenarios));
}
