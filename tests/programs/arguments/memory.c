/* Memory registration. */
#include <stdint.h>
#include <sys/mman.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

void registrations(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 8192, 4);
	struct ibv_pd *pd = endpoint.pd;
	unsigned char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	/* A page without rights, not a gap: another thread's mapping may come to lie in a gap. */
	CHECK_EQ(mprotect(pages + 4096, 4096, PROT_NONE), 0);
	CHECK_EQ(mprotect(pages + 8192, 4096, PROT_READ), 0);
	int write = IBV_ACCESS_LOCAL_WRITE;

	/* Nothing to read, in whole or in part, and nothing there. */
	CHECK_NULL(ibv_reg_mr(pd, pages + 4096, 4096, write), EFAULT);
	CHECK_NULL(ibv_reg_mr(pd, pages, 8192, write), EFAULT);
	CHECK_NULL(ibv_reg_mr(pd, pages + 4000, 200, 0), EFAULT);
	CHECK_NULL(ibv_reg_mr(pd, NULL, 4096, write), EFAULT);
	CHECK_NULL(ibv_reg_mr(pd, (void *)(uintptr_t)-8192, 4096, write), EFAULT);
	/* Read only. */
	CHECK_NULL(ibv_reg_mr(pd, pages + 8192, 4096, write), EFAULT);
	struct ibv_mr *mr = ibv_reg_mr(pd, pages + 8192, 4096, IBV_ACCESS_REMOTE_READ);
	CHECK(mr);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	/* Beyond the end of the address space, and nothing at all. */
	CHECK_NULL(ibv_reg_mr(pd, pages, SIZE_MAX - 4096, write), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, pages, 0, write), EINVAL);

	/* Rights that need another, and rights that do not exist. */
	CHECK_NULL(ibv_reg_mr(pd, pages, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, pages, 4096, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, pages, 4096, write | 1 << 15), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, pages, 4096, write | 1 << 30), EINVAL);
	errno = 0;
	/* Kernels before 6.15 have no on-demand paging for rxe. */
	mr = ibv_reg_mr(pd, pages, 4096, write | IBV_ACCESS_ON_DEMAND);
	if (mr)
		CHECK_EQ(ibv_dereg_mr(mr), 0);
	else
		CHECK_ONE_OF(errno, EOPNOTSUPP, EINVAL);
	mr = ibv_reg_mr(pd, pages, 4096, write | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	CHECK(mr->addr == pages && mr->length == 4096 && mr->pd == pd);
	CHECK(mr->context == endpoint.context);

	/* Changes that are refused before anything changes. */
	CHECK_EQ(ibv_rereg_mr(mr, 1 << 10, pd, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, pd, NULL, 4096, 0),
		 IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, pd, pages, 0, 0),
		 IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, write),
		 IBV_REREG_MR_ERR_INPUT);
	/* Changes that the kernel refuses. */
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, pages + 4096, 4096, 0),
		 IBV_REREG_MR_ERR_CMD);
	CHECK_EQ(errno, EFAULT);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      IBV_ACCESS_REMOTE_WRITE),
		 IBV_REREG_MR_ERR_CMD);
	CHECK_EQ(errno, EINVAL);
	CHECK(mr->addr == pages && mr->length == 4096 && mr->pd == pd);
	CHECK_EQ(ibv_dereg_mr(mr), 0);

	/* An address for peers: anything with the same offset in its page. */
	mr = ibv_reg_mr_iova(pd, pages + 16, 4000, 0x100010, write | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_NULL(ibv_reg_mr_iova(pd, pages + 16, 4000, 0x100020, write), EINVAL);

	munmap(pages, 3 * 4096);
	close_endpoint(&endpoint);
}

/* Writes `length` bytes from the start of the buffer to an address of a region. */
static enum ibv_wc_status write_to(struct endpoint *endpoint, struct ibv_mr *mr, void *to,
				   uint32_t length)
{
	struct connection connection = connect_to_self(endpoint, 4);
	CHECK_EQ(post_rdma(connection.left, endpoint, IBV_WR_RDMA_WRITE, 0, length, (uintptr_t)to,
			   mr->rkey, 1),
		 0);
	enum ibv_wc_status status = next_completion(endpoint->cq).status;
	disconnect(&connection);
	return status;
}

/* A region that is registered again has its new memory, rights and domain, and no others. */
void registrations_again(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 16);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	unsigned char *pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(endpoint.pd, pages, 4096, rights);
	CHECK(mr);
	fill(endpoint.buffer, 64, 1);
	CHECK_EQ(write_to(&endpoint, mr, pages, 64), IBV_WC_SUCCESS);
	CHECK(is_filled(pages, 64, 1));

	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, pages + 4096, 4096, 0), 0);
	CHECK(mr->addr == pages + 4096 && mr->length == 4096);
	/* The memory of before may go: nothing touches it. */
	CHECK_EQ(munmap(pages, 4096), 0);
	CHECK_EQ(write_to(&endpoint, mr, pages, 64), IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(write_to(&endpoint, mr, pages + 4096, 64), IBV_WC_SUCCESS);
	CHECK(is_filled(pages + 4096, 64, 1));

	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      IBV_ACCESS_LOCAL_WRITE),
		 0);
	CHECK_EQ(write_to(&endpoint, mr, pages + 4096, 64), IBV_WC_REM_ACCESS_ERR);
	struct ibv_pd *pd = ibv_alloc_pd(endpoint.context);
	CHECK(pd);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_PD, pd, NULL, 0,
			      rights),
		 0);
	CHECK(mr->pd == pd);
	CHECK_CODE(ibv_dealloc_pd(pd), EBUSY);
	CHECK_EQ(write_to(&endpoint, mr, pages + 4096, 64), IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, endpoint.pd, NULL, 0, 0), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	fill(endpoint.buffer, 64, 2);
	CHECK_EQ(write_to(&endpoint, mr, pages + 4096, 64), IBV_WC_SUCCESS);
	CHECK(is_filled(pages + 4096, 64, 2));
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	munmap(pages + 4096, 4096);
	close_endpoint(&endpoint);
}

/* A null region takes a part of a message, and gives zeros. */
void null_region(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 8192, 16);
	struct ibv_mr *null = ibv_alloc_null_mr(endpoint.pd);
	CHECK(null);
	CHECK_EQ(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, endpoint.buffer, 64, 0),
		 IBV_REREG_MR_ERR_INPUT);
	struct connection connection = connect_to_self(&endpoint, 4);
	fill(endpoint.buffer, 128, 3);
	fill(endpoint.buffer + 4096, 128, 4);
	struct ibv_sge whole = {(uintptr_t)endpoint.buffer, 128, endpoint.mr->lkey};
	struct ibv_sge nothing = {0, 128, null->lkey};
	struct ibv_send_wr request = {.sg_list = &whole,
				      .num_sge = 1,
				      .opcode = IBV_WR_SEND,
				      .send_flags = IBV_SEND_SIGNALED},
			   *refused;
	struct ibv_recv_wr receive = {.sg_list = &nothing, .num_sge = 1}, *refused_receive;
	CHECK_EQ(ibv_post_recv(connection.right, &receive, &refused_receive), 0);
	CHECK_EQ(ibv_post_send(connection.left, &request, &refused), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK(is_filled(endpoint.buffer + 4096, 128, 4));

	request.sg_list = &nothing;
	CHECK_EQ(post_recv(connection.right, &endpoint, 4096, 128, 1), 0);
	CHECK_EQ(ibv_post_send(connection.left, &request, &refused), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	for (int i = 0; i < 128; i++)
		CHECK_EQ(endpoint.buffer[4096 + i], 0);
	disconnect(&connection);
	CHECK_EQ(ibv_dereg_mr(null), 0);
	close_endpoint(&endpoint);
}
