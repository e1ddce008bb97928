/* Buffers that the library allocates, by functions that newer headers declare. */
#include "arguments.h"
#include "check.h"
#include "endpoint.h"

#include <dlfcn.h>
#include <stdint.h>

struct ibv_buf;
typedef void *allocate(struct ibv_pd *, size_t, struct ibv_buf **);
typedef void release(struct ibv_buf *);
typedef struct ibv_mr *enroll(struct ibv_pd *, struct ibv_buf *, void *, size_t, int);
typedef int export_descriptor(struct ibv_buf *);

/* IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC: allocations may be memory that the host of a
 * confidential guest can read. */
enum { ALLOW_UNPROTECTED = 1 << 2 };

static void *found(const char *name, const char *version)
{
	void *function = dlvsym(RTLD_DEFAULT, name, version);
	CHECK(function);
	return function;
}

/* A page of a domain is registered whole, and nothing beyond it; it has no DMA buffer behind it. */
static void buffer_of(struct endpoint *endpoint, struct ibv_pd *pd, struct ibv_pd *other)
{
	allocate *alloc_buf = (allocate *)found("ibv_alloc_buf", "IBVERBS_1.17");
	release *free_buf = (release *)found("ibv_free_buf", "IBVERBS_1.17");
	enroll *reg_buf_mr = (enroll *)found("ibv_reg_buf_mr", "IBVERBS_1.17");
	export_descriptor *export_buf =
		(export_descriptor *)found("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
	struct ibv_buf *buffer = NULL;
	CHECK_NULL(alloc_buf(pd, 0, &buffer), EINVAL);
	char *memory = alloc_buf(pd, 4096, &buffer);
	CHECK(memory && buffer);
	CHECK_EQ((uintptr_t)memory % 4096, 0);
	CHECK_MINUS_ONE(export_buf(buffer), ENODATA);
	CHECK_NULL(reg_buf_mr(other, buffer, memory, 4096, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	CHECK_NULL(reg_buf_mr(pd, buffer, memory, 8192, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	CHECK_NULL(reg_buf_mr(pd, buffer, memory + 1, 4096, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	struct ibv_mr *region = reg_buf_mr(pd, buffer, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(region);

	struct endpoint within = *endpoint;
	within.pd = pd;
	within.buffer = (unsigned char *)memory;
	within.length = 4096;
	within.mr = region;
	struct connection connection = connect_to_self(&within, 4);
	CHECK_EQ(post_recv(connection.right, &within, 2048, 1024, 1), 0);
	memset(memory, 0x5a, 1024);
	CHECK_EQ(post_send(connection.left, &within, 0, 1024, 2), 0);
	for (int taken = 0; taken < 2;) {
		struct ibv_wc completion;
		int polled = ibv_poll_cq(endpoint->cq, 1, &completion);
		CHECK(polled >= 0);
		CHECK(!polled || completion.status == IBV_WC_SUCCESS);
		taken += polled;
	}
	CHECK_EQ(memcmp(memory, memory + 2048, 1024), 0);
	disconnect(&connection);
	CHECK_EQ(ibv_dereg_mr(region), 0);
	free_buf(buffer);
}

void library_buffers(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 16);
	struct ibv_pd *other = ibv_alloc_pd(endpoint.context);
	CHECK(other);
	buffer_of(&endpoint, endpoint.pd, other);
	struct ibv_parent_domain_init_attr attributes = {.pd = other, .comp_mask = ALLOW_UNPROTECTED};
	struct ibv_pd *parent = ibv_alloc_parent_domain(endpoint.context, &attributes);
	CHECK(parent);
	buffer_of(&endpoint, parent, endpoint.pd);
	CHECK_EQ(ibv_dealloc_pd(parent), 0);
	CHECK_EQ(ibv_dealloc_pd(other), 0);
	close_endpoint(&endpoint);
}
