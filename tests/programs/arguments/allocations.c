/* Long inline data: no allocation for each request. */
#include <stdint.h>
#include <string.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

void *__libc_malloc(size_t size);
void *__libc_realloc(void *old, size_t size);

enum { LENGTH = 200, BUFFER = 256, DEPTH = 16, ROUNDS = 200, WARM_UP = 50 };

/* AddressSanitizer has an allocator of its own: with it the bytes are checked, and nothing is counted. */
#ifdef __SANITIZE_ADDRESS__
#define COUNTS 0
#else
#define COUNTS 1
#endif

/* Allocations of this thread that may be memory of inline data: LENGTH rounded up to a power of two. A
 * frame to this host itself is copied, too, and has another length. */
static __thread unsigned long buffers;

#if COUNTS
/* In place of those of the C library, for this program and the libraries that it has. */
void *malloc(size_t size)
{
	buffers += size == BUFFER;
	return __libc_malloc(size);
}

void *realloc(void *old, size_t size)
{
	buffers += size == BUFFER;
	return __libc_realloc(old, size);
}
#endif

static struct ibv_qp *make_inline_qp(struct endpoint *endpoint, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attributes = {
		.send_cq = endpoint->cq,
		.recv_cq = endpoint->cq,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = 220},
		.qp_type = type,
		.pd = endpoint->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(endpoint->context, &attributes);
	CHECK(qp);
	CHECK(attributes.cap.max_inline_data >= 220);
	return qp;
}

/* Writes a number of messages of inline data and checks the last one's bytes. */
static void write_inline(struct endpoint *endpoint, struct ibv_qp *qp, int round)
{
	unsigned char *from = endpoint->buffer, *to = from + 4096;
	struct ibv_sge piece = {(uintptr_t)from, LENGTH, 0};
	struct ibv_send_wr requests[DEPTH], *refused;
	for (int i = 0; i < DEPTH; i++)
		requests[i] = (struct ibv_send_wr){
			.next = i + 1 < DEPTH ? &requests[i + 1] : NULL,
			.sg_list = &piece,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_INLINE | (i + 1 < DEPTH ? 0 : IBV_SEND_SIGNALED),
			.wr.rdma = {(uintptr_t)to, endpoint->mr->rkey},
		};
	memset(from, round + 1, LENGTH);
	CHECK_EQ(ibv_post_send(qp, requests, &refused), 0);
	memset(from, 0, LENGTH);
	CHECK_EQ(next_completion(endpoint->cq).status, IBV_WC_SUCCESS);
	CHECK(to[0] == (unsigned char)(round + 1) && to[LENGTH - 1] == to[0]);
}

/* The same by a call for each part. */
static void build_inline(struct endpoint *endpoint, struct ibv_qp *qp, int round)
{
	unsigned char *from = endpoint->buffer, *to = from + 4096;
	struct ibv_qp_ex *builder = ibv_qp_to_qp_ex(qp);
	memset(from, round + 2, LENGTH);
	ibv_wr_start(builder);
	for (int i = 0; i < DEPTH; i++) {
		builder->wr_flags = i + 1 < DEPTH ? 0 : IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(builder, endpoint->mr->rkey, (uintptr_t)to);
		ibv_wr_set_inline_data(builder, from, LENGTH);
	}
	CHECK_EQ(ibv_wr_complete(builder), 0);
	memset(from, 0, LENGTH);
	CHECK_EQ(next_completion(endpoint->cq).status, IBV_WC_SUCCESS);
	CHECK(to[0] == (unsigned char)(round + 2) && to[LENGTH - 1] == to[0]);
}

void inline_data(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 8192, 4 * DEPTH);
	struct ibv_qp *qp = make_inline_qp(&endpoint, IBV_QPT_RC);
	connect_qp(qp, &endpoint, &endpoint.gid, qp->qp_num);
	void (*const ways[])(struct endpoint *, struct ibv_qp *, int) = {write_inline,
									 build_inline};
	for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
		for (int round = 0; round < WARM_UP; round++)
			ways[way](&endpoint, qp, round);
		unsigned long before = buffers;
		CHECK(!COUNTS || before >= DEPTH);
		for (int round = 0; round < ROUNDS; round++)
			ways[way](&endpoint, qp, round);
		CHECK_EQ(buffers - before, 0);
	}
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_endpoint(&endpoint);
}
