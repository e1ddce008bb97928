/* Device memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "endpoint.h"
#include "windows.h"

enum { LENGTH = 4096, RIGHTS = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE };

static struct ibv_dm *allocate(struct ibv_context *context, size_t length)
{
	struct ibv_alloc_dm_attr attributes = {.length = length};
	return ibv_alloc_dm(context, &attributes);
}

/* Whole words inside the memory are copied, which begins as zeros; everything else is refused. */
void device_copies(void)
{
	struct ibv_context *context = open_device();
	struct ibv_device_attr_ex attributes;
	unsigned char bytes[LENGTH + 1], seen[LENGTH + 1];
	CHECK_EQ(ibv_query_device_ex(context, NULL, &attributes), 0);
	CHECK(allocate(context, attributes.max_dm_size + 1) == NULL);
	CHECK(allocate(context, 0) == NULL);
	struct ibv_alloc_dm_attr unknown = {.length = 64, .comp_mask = 1};
	CHECK(ibv_alloc_dm(context, &unknown) == NULL);
	struct ibv_alloc_dm_attr aligned = {.length = 64, .log_align_req = 16};
	struct ibv_dm *small = ibv_alloc_dm(context, &aligned);
	struct ibv_dm *large = allocate(context, attributes.max_dm_size);
	CHECK(small != NULL && large != NULL);
	CHECK_EQ(ibv_free_dm(small), 0);
	CHECK_EQ(ibv_free_dm(large), 0);

	struct ibv_dm *dm = allocate(context, LENGTH);
	CHECK(dm != NULL && dm->context == context);
	memset(seen, 1, sizeof(seen));
	/* From and to addresses that are not aligned. */
	CHECK_EQ(ibv_memcpy_from_dm(seen + 1, dm, 0, LENGTH), 0);
	for (int i = 0; i < LENGTH; i++)
		CHECK_EQ(seen[i + 1], 0);
	fill(bytes + 1, LENGTH, 3);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 8, bytes + 1, LENGTH - 8), 0);
	CHECK_EQ(ibv_memcpy_from_dm(seen, dm, 8, LENGTH - 8), 0);
	CHECK_EQ(memcmp(seen, bytes + 1, LENGTH - 8), 0);
	static const struct {
		uint64_t offset;
		size_t length;
		int expected;
	} wrong[] = {{3, 4, EINVAL},		{4, 3, EINVAL},	   {LENGTH, 4, EFAULT},
		     {4, LENGTH, EFAULT},	{UINT64_MAX - 3, 8, EFAULT}, {0, SIZE_MAX - 3, EFAULT}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		CHECK_EQ(ibv_memcpy_to_dm(dm, wrong[i].offset, bytes, wrong[i].length),
			 wrong[i].expected);
		CHECK_EQ(ibv_memcpy_from_dm(seen, dm, wrong[i].offset, wrong[i].length),
			 wrong[i].expected);
	}
	CHECK_EQ(ibv_free_dm(dm), 0);
	CHECK_EQ(ibv_close_device(context), 0);
}

/* Messages go from device memory into device memory; a region keeps the memory. */
void device_transfers(void)
{
	struct endpoint endpoint;
	unsigned char bytes[LENGTH], seen[LENGTH];
	struct ibv_send_wr *bad;
	open_endpoint(&endpoint, LENGTH, 64);
	struct connection connection = connect_to_self(&endpoint, 8);
	struct ibv_dm *dm = allocate(endpoint.context, 2 * LENGTH);
	CHECK(dm != NULL);
	errno = 0;
	CHECK(ibv_reg_dm_mr(endpoint.pd, dm, 0, LENGTH, IBV_ACCESS_LOCAL_WRITE) == NULL);
	CHECK_EQ(errno, EINVAL);
	CHECK(ibv_reg_dm_mr(endpoint.pd, dm, 8, 2 * LENGTH, RIGHTS) == NULL);
	CHECK(ibv_reg_dm_mr(endpoint.pd, dm, UINT64_MAX, 2, RIGHTS) == NULL);
	struct ibv_mr *from = ibv_reg_dm_mr(endpoint.pd, dm, 0, LENGTH, RIGHTS);
	struct ibv_mr *to =
		ibv_reg_dm_mr(endpoint.pd, dm, LENGTH, LENGTH, RIGHTS | IBV_ACCESS_REMOTE_WRITE);
	CHECK(from != NULL && to != NULL && from->addr == NULL && to->length == LENGTH);
	CHECK_EQ(ibv_rereg_mr(to, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS),
		 IBV_REREG_MR_ERR_INPUT);

	fill(bytes, LENGTH, 9);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 0, bytes, LENGTH), 0);
	/* Both regions begin at address 0. */
	struct ibv_sge piece = {0, LENGTH, from->lkey};
	struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	request.send_flags = IBV_SEND_SIGNALED;
	request.wr.rdma.rkey = to->rkey;
	CHECK_EQ(ibv_post_send(connection.left, &request, &bad), 0);
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_memcpy_from_dm(seen, dm, LENGTH, LENGTH), 0);
	CHECK(is_filled(seen, LENGTH, 9));
	request.wr.rdma.remote_addr = 1;
	CHECK_EQ(ibv_post_send(connection.left, &request, &bad), 0);
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_REM_ACCESS_ERR);

	CHECK_EQ(ibv_dereg_mr(from), 0);
	CHECK_EQ(ibv_free_dm(dm), EBUSY);
	CHECK_EQ(ibv_dereg_mr(to), 0);
	CHECK_EQ(ibv_free_dm(dm), 0);
	disconnect(&connection);
	close_endpoint(&endpoint);
}

/* A window on device memory opens a part of it. */
void device_windows(void)
{
	struct endpoint endpoint;
	unsigned char seen[8];
	open_endpoint(&endpoint, LENGTH, 64);
	struct connection connection = connect_to_self(&endpoint, 8);
	struct ibv_dm *dm = allocate(endpoint.context, LENGTH);
	struct ibv_mr *mr = ibv_reg_dm_mr(endpoint.pd, dm, 0, LENGTH, RIGHTS | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(endpoint.pd, IBV_MW_TYPE_1);
	CHECK(dm != NULL && mr != NULL && mw != NULL);
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
	bind.bind_info = (struct ibv_mw_bind_info){mr, 64, 8, IBV_ACCESS_REMOTE_WRITE};
	CHECK_EQ(ibv_bind_mw(connection.right, mw, &bind), 0);
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	fill(endpoint.buffer, 8, 2);
	CHECK_EQ(post_rdma(connection.left, &endpoint, IBV_WR_RDMA_WRITE, 0, 8, 64, mw->rkey, 1), 0);
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_memcpy_from_dm(seen, dm, 64, 8), 0);
	CHECK(is_filled(seen, 8, 2));
	CHECK_EQ(ibv_dereg_mr(mr), EBUSY);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_free_dm(dm), 0);
	disconnect(&connection);
	close_endpoint(&endpoint);
}
