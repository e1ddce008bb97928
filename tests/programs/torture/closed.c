/* Closing a context that has objects. */
#include <sys/mman.h>

#include "check.h"
#include "endpoint.h"
#include "torture.h"

#define PAGE 4096

/* As the kernel, which destroys the objects of a context with its descriptor: no peer reaches memory
 * that the program has registered, and the program may use it for something else. */
void closed_context(void)
{
	struct endpoint left, right;
	open_endpoint(&left, 3 * PAGE, 64);
	open_endpoint(&right, 3 * PAGE, 64);
	struct connection others = connect_to_self(&right, 16);
	unsigned char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(left.pd, memory, PAGE,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	uint32_t rkey = mr->rkey;
	struct ibv_qp *qp = make_qp(&left, 16), *peer = make_qp(&right, 16);
	CHECK_NULL(ibv_create_qp(right.pd, &(struct ibv_qp_init_attr){
						   .send_cq = left.cq,
						   .recv_cq = left.cq,
						   .qp_type = IBV_QPT_RC,
					   }),
		   EINVAL);
	connect_qp(qp, &left, &right.gid, peer->qp_num);
	/* 4 ms, one retry. */
	connect_qp_with(peer, &right, &left.gid, qp->qp_num, 10, 1);
	fill(right.buffer, 64, 1);
	CHECK_EQ(post_rdma(peer, &right, IBV_WR_RDMA_WRITE, 0, 64, (uintptr_t)memory, rkey, 1), 0);
	CHECK_EQ(next_completion(right.cq).status, IBV_WC_SUCCESS);
	CHECK(is_filled(memory, 64, 1));
	CHECK_EQ(post_recv(qp, &left, 0, 64, 1), 0);

	CHECK_EQ(ibv_close_device(left.context), 0);
	CHECK_EQ(munmap(memory, PAGE), 0);
	CHECK(mmap(memory, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0) == memory);
	fill(memory, 64, 2);
	fill(right.buffer, 64, 3);
	CHECK_EQ(post_rdma(peer, &right, IBV_WR_RDMA_WRITE, 0, 64, (uintptr_t)memory, rkey, 2), 0);
	CHECK_EQ(next_completion(right.cq).status, IBV_WC_RETRY_EXC_ERR);
	CHECK(is_filled(memory, 64, 2));
	/* The other context of the device goes on. */
	transfer(&right, &others, 4096, 4);

	/* What is left does nothing, and can be destroyed. */
	struct ibv_wc completion;
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_init_attr init;
	CHECK_CODE(post_send(qp, &left, 0, 64, 1), EINVAL);
	CHECK_CODE(post_recv(qp, &left, 0, 64, 1), EINVAL);
	CHECK_CODE(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), EINVAL);
	CHECK_CODE(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init), EBADF);
	CHECK_NULL(ibv_create_qp(left.pd, &(struct ibv_qp_init_attr){
						  .send_cq = left.cq,
						  .recv_cq = left.cq,
						  .qp_type = IBV_QPT_RC,
					  }),
		   EBADF);
	CHECK_EQ(ibv_poll_cq(left.cq, 1, &completion), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dereg_mr(left.mr), 0);
	CHECK_EQ(ibv_destroy_cq(left.cq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(left.channel), 0);
	CHECK_EQ(ibv_dealloc_pd(left.pd), 0);
	free(left.buffer);
	CHECK_EQ(ibv_destroy_qp(peer), 0);
	disconnect(&others);
	close_endpoint(&right);
	CHECK_EQ(munmap(memory, PAGE), 0);
}
