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
	CHECK_EQ(munmap(pages + 4096, 4096), 0);
	CHECK_EQ(mprotect(pages + 8192, 4096, PROT_READ), 0);
	int write = IBV_ACCESS_LOCAL_WRITE;

	/* Nothing there, in whole or in part. */
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
	CHECK(!ibv_reg_mr(pd, pages, 4096, write | IBV_ACCESS_ON_DEMAND));
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
	CHECK_EQ(ibv_dereg_mr(mr), 0);

	/* An address for peers: anything with the same offset in its page. */
	mr = ibv_reg_mr_iova(pd, pages + 16, 4000, 0x100010, write | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_NULL(ibv_reg_mr_iova(pd, pages + 16, 4000, 0x100020, write), EINVAL);

	CHECK(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, write));
	CHECK_ONE_OF(errno, EOPNOTSUPP, EBADF);
	munmap(pages, 4096);
	munmap(pages + 8192, 4096);
	close_endpoint(&endpoint);
}
