/* On-demand paging: capabilities, registrations and advice. */
#include <stdint.h>
#include <sys/mman.h>

#include "absent.h"
#include "check.h"

#define PAGES 256
#define PAGE 4096

/* Returns how many of the pages are present. */
static int present(unsigned char *at)
{
	unsigned char state[PAGES];
	int count = 0;
	CHECK_EQ(mincore(at, PAGES * PAGE, state), 0);
	for (int i = 0; i < PAGES; i++)
		count += state[i] & 1;
	return count;
}

static unsigned char *map(int rights)
{
	unsigned char *at = mmap(NULL, PAGES * PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	/* Else the kernel may page in more than one page at a time. */
	madvise(at, PAGES * PAGE, MADV_NOHUGEPAGE);
	return at;
}

static const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_ON_DEMAND;

void paging_on_demand(void)
{
	struct endpoint endpoint;
	struct ibv_device_attr_ex attributes;
	open_endpoint(&endpoint, 3 * MESSAGE, 64);
	CHECK_EQ(ibv_query_device_ex(endpoint.context, NULL, &attributes), 0);
	CHECK_EQ(attributes.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	CHECK_EQ(attributes.odp_caps.per_transport_caps.rc_odp_caps,
		 IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
			 IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV |
			 /* FLUSH and ATOMIC WRITE, which rdma-core 44 does not name. */
			 1 << 6 | 1 << 7);

	unsigned char *at = map(PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = ibv_reg_mr(endpoint.pd, at, PAGES * PAGE, rights);
	CHECK(mr);
	CHECK_EQ(present(at), 0);
	struct connection connection = connect_to_self(&endpoint, 8);
	fill(endpoint.buffer, MESSAGE, 3);
	CHECK_EQ(post_rdma(connection.left, &endpoint, IBV_WR_RDMA_WRITE, 0, MESSAGE,
			   (uintptr_t)at + 10 * PAGE, mr->rkey, 1),
		 0);
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK_EQ(present(at), MESSAGE / PAGE);
	CHECK(is_filled(at + 10 * PAGE, MESSAGE, 3));
	/* Mapped anew at the same addresses, the region has the new pages. */
	CHECK(mmap(at, PAGES * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	memset(at, 9, PAGE);
	CHECK_EQ(post_rdma(connection.left, &endpoint, IBV_WR_RDMA_READ, 0, PAGE, (uintptr_t)at,
			   mr->rkey, 2),
		 0);
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK_EQ(endpoint.buffer[PAGE - 1], 9);
	/* Without the flag all pages are made present. */
	unsigned char *pinned = map(PROT_READ | PROT_WRITE);
	struct ibv_mr *other = ibv_reg_mr(endpoint.pd, pinned, PAGES * PAGE, rights & ~IBV_ACCESS_ON_DEMAND);
	CHECK(other);
	CHECK_EQ(present(pinned), PAGES);
	CHECK_EQ(ibv_dereg_mr(other), 0);
	disconnect(&connection);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	close_endpoint(&endpoint);
}

void paging_implicit(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * MESSAGE, 64);
	CHECK_NULL(ibv_reg_mr(endpoint.pd, NULL, SIZE_MAX, rights & ~IBV_ACCESS_ON_DEMAND), EINVAL);
	struct ibv_mr *all = ibv_reg_mr(endpoint.pd, NULL, SIZE_MAX, rights);
	CHECK(all);
	struct connection connection = connect_to_self(&endpoint, 8);
	fill(endpoint.buffer, MESSAGE, 3);
	/* Memory that did not exist when the region was registered, and this stack. */
	unsigned char *at = map(PROT_READ | PROT_WRITE), here[100] = {0};
	CHECK_EQ(post_rdma(connection.left, &endpoint, IBV_WR_RDMA_WRITE, 0, MESSAGE, (uintptr_t)at,
			   all->rkey, 1),
		 0);
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK(is_filled(at, MESSAGE, 3));
	CHECK_EQ(post_rdma(connection.left, &endpoint, IBV_WR_RDMA_WRITE, 0, sizeof here,
			   (uintptr_t)here, all->rkey, 2),
		 0);
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK(is_filled(here, sizeof here, 3));
	/* The key of the whole address space opens what is mapped, and nothing else. */
	CHECK_EQ(post_rdma(connection.left, &endpoint, IBV_WR_RDMA_WRITE, 0, 8, 64, all->rkey, 3), 0);
	CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_REM_OP_ERR);
	disconnect(&connection);
	CHECK_EQ(ibv_dereg_mr(all), 0);
	close_endpoint(&endpoint);
}

void paging_advice(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * MESSAGE, 64);
	unsigned char *at = map(PROT_READ | PROT_WRITE), *constant = map(PROT_READ);
	struct ibv_mr *mr = ibv_reg_mr(endpoint.pd, at, PAGES * PAGE, rights);
	struct ibv_mr *read_only = ibv_reg_mr(endpoint.pd, constant, PAGES * PAGE, IBV_ACCESS_ON_DEMAND);
	CHECK(mr && read_only);
	struct ibv_sge pieces[2] = {{(uintptr_t)at, 3 * PAGE, mr->lkey},
				    {(uintptr_t)at + 8 * PAGE, 5 * PAGE, mr->lkey}};
	unsigned flush = IBV_ADVISE_MR_FLAG_FLUSH;
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, flush, pieces, 2), 0);
	CHECK_EQ(present(at), 0);
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, flush, pieces, 2), 0);
	CHECK_EQ(present(at), 8);
	pieces[0].addr = (uintptr_t)at + 100 * PAGE;
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, pieces, 1), 0);
	CHECK_EQ(present(at), 11);
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, pieces, 1), 0);

	struct ibv_sge piece = {(uintptr_t)constant, PAGE, read_only->lkey};
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, &piece, 1), 0);
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, flush, &piece, 1), EPERM);
	CHECK_EQ(ibv_advise_mr(endpoint.pd, 3, flush, &piece, 1), EOPNOTSUPP);
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &piece, 1), EINVAL);
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, &piece, 0), EINVAL);
	piece.lkey = endpoint.mr->lkey;
	piece.addr = (uintptr_t)endpoint.buffer;
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, &piece, 1), EINVAL);
	/* Outside of the region, and inside where no page is. */
	piece = (struct ibv_sge){(uintptr_t)at + PAGES * PAGE - 1, 2, mr->lkey};
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, &piece, 1), EFAULT);
	CHECK_EQ(mprotect(at, PAGE, PROT_NONE), 0);
	piece = (struct ibv_sge){(uintptr_t)at, PAGE, mr->lkey};
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, &piece, 1), EFAULT);
	CHECK_EQ(ibv_advise_mr(endpoint.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dereg_mr(read_only), 0);
	close_endpoint(&endpoint);
}
