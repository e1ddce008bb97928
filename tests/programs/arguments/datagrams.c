/* Queue pairs of datagrams. */
#include <stdint.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

static struct ibv_qp *make_datagram_qp(struct endpoint *endpoint)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = endpoint->cq,
		.recv_cq = endpoint->cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
	};
	struct ibv_qp *qp = ibv_create_qp(endpoint->pd, &attributes);
	CHECK(qp);
	return qp;
}

static int modify(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attributes = {.qp_state = state, .port_num = 1, .qkey = 0x1111};
	return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | mask);
}

void datagrams(void)
{
	struct endpoint endpoint;
	struct ibv_port_attr port;
	open_endpoint(&endpoint, 16384, 16);
	CHECK_EQ(ibv_query_port(endpoint.context, 1, &port), 0);
	struct ibv_qp *qp = make_datagram_qp(&endpoint);
	const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

	CHECK_CODE(modify(qp, IBV_QPS_INIT, init & ~IBV_QP_QKEY), EINVAL);
	CHECK_CODE(modify(qp, IBV_QPS_INIT, init | IBV_QP_ACCESS_FLAGS), EINVAL);
	CHECK_EQ(modify(qp, IBV_QPS_INIT, init), 0);
	CHECK_CODE(modify(qp, IBV_QPS_RTR, IBV_QP_DEST_QPN), EINVAL);
	CHECK_EQ(modify(qp, IBV_QPS_RTR, 0), 0);
	CHECK_CODE(modify(qp, IBV_QPS_RTS, 0), EINVAL);
	CHECK_EQ(modify(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);

	struct ibv_ah_attr address = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = endpoint.gid, .sgid_index = endpoint.gid_index, .hop_limit = 1},
	};
	struct ibv_ah *ah = ibv_create_ah(endpoint.pd, &address);
	CHECK(ah);
	struct ibv_sge piece = {(uintptr_t)endpoint.buffer, 64, endpoint.mr->lkey};
	const struct ibv_send_wr good = {
		.wr_id = 3,
		.sg_list = &piece,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = 0x1111},
	};
	struct ibv_send_wr wrong = good, *refused = NULL;
	struct ibv_wc completion;
	wrong.wr.ud.ah = NULL;
	CHECK_CODE(ibv_post_send(qp, &wrong, &refused), EINVAL);
	CHECK(refused == &wrong);

	/* What no datagram can do, and one that is too long: refused at once, or by a completion. */
	const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
					      IBV_WR_ATOMIC_CMP_AND_SWP};
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		wrong = good;
		wrong.opcode = opcodes[i];
		CHECK(ibv_post_send(qp, &wrong, &refused) != 0);
		CHECK(refused == &wrong);
	}
	wrong = good;
	piece.length = (128u << port.active_mtu) + 1;
	if (ibv_post_send(qp, &wrong, &refused) == 0)
		CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_LOC_LEN_ERR);
	piece.length = 64;

	/* A datagram with another key, then one that is received, with its header in front. */
	struct ibv_qp *other = make_datagram_qp(&endpoint);
	CHECK_EQ(modify(other, IBV_QPS_INIT, init), 0);
	CHECK_EQ(modify(other, IBV_QPS_RTR, 0), 0);
	CHECK_EQ(modify(other, IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
	CHECK_EQ(post_recv(other, &endpoint, 4096, 40 + 64, 1), 0);
	struct ibv_send_wr request = good;
	request.wr.ud.remote_qpn = other->qp_num;
	request.wr.ud.remote_qkey = 0x2222;
	struct ibv_qp *sender = make_datagram_qp(&endpoint);
	CHECK_EQ(modify(sender, IBV_QPS_INIT, init), 0);
	CHECK_EQ(modify(sender, IBV_QPS_RTR, 0), 0);
	CHECK_EQ(modify(sender, IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
	CHECK_EQ(ibv_post_send(sender, &request, &refused), 0);
	CHECK_EQ(next_completion(endpoint.cq).wr_id, 3);
	request.wr.ud.remote_qkey = 0x1111;
	fill(endpoint.buffer, 64, 9);
	CHECK_EQ(ibv_post_send(sender, &request, &refused), 0);
	for (int i = 0; i < 2; i++) {
		completion = next_completion(endpoint.cq);
		CHECK_EQ(completion.status, IBV_WC_SUCCESS);
		if (completion.wr_id == 1) {
			CHECK_EQ(completion.byte_len, 40 + 64);
			CHECK_EQ(completion.src_qp, sender->qp_num);
			CHECK(completion.wc_flags & IBV_WC_GRH);
		}
	}
	CHECK(is_filled(endpoint.buffer + 4096 + 40, 64, 9));
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_qp(other), 0);
	CHECK_EQ(ibv_destroy_qp(sender), 0);
	close_endpoint(&endpoint);
}

/* A list of datagrams to several queue pairs, of which a later one is wrong. */
void datagrams_to_several(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 16384, 16);
	struct ibv_qp *qps[3];
	for (int i = 0; i < 3; i++) {
		qps[i] = make_datagram_qp(&endpoint);
		CHECK_EQ(modify(qps[i], IBV_QPS_INIT,
				IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
			 0);
		CHECK_EQ(modify(qps[i], IBV_QPS_RTR, 0), 0);
		CHECK_EQ(modify(qps[i], IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
	}
	struct ibv_ah_attr address = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = endpoint.gid, .sgid_index = endpoint.gid_index, .hop_limit = 1},
	};
	struct ibv_ah *handles[2] = {ibv_create_ah(endpoint.pd, &address),
				     ibv_create_ah(endpoint.pd, &address)};
	CHECK(handles[0] && handles[1]);
	struct ibv_sge pieces[4];
	struct ibv_send_wr requests[4], *refused = NULL;
	for (int i = 0; i < 4; i++) {
		fill(endpoint.buffer + 64 * i, 64, i + 1);
		pieces[i] = (struct ibv_sge){(uintptr_t)endpoint.buffer + 64 * i, 64,
					     endpoint.mr->lkey};
		requests[i] = (struct ibv_send_wr){
			.wr_id = 100 + i,
			.next = i < 3 ? &requests[i + 1] : NULL,
			.sg_list = &pieces[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.wr.ud = {handles[i % 2], qps[1 + i % 2]->qp_num, 0x1111},
		};
	}
	for (int i = 0; i < 3; i++)
		CHECK_EQ(post_recv(qps[1 + i % 2], &endpoint, 4096 + 128 * i, 40 + 64, i), 0);
	requests[2].wr.ud.remote_qpn = 1u << 24;
	CHECK_CODE(ibv_post_send(qps[0], requests, &refused), EINVAL);
	CHECK(refused == &requests[2]);
	/* Those before it are sent. */
	for (int i = 0; i < 2; i++) {
		struct ibv_wc completion = next_completion(endpoint.cq);
		CHECK_EQ(completion.status, IBV_WC_SUCCESS);
		CHECK(completion.wr_id < 2 && completion.src_qp == qps[0]->qp_num);
	}
	for (int i = 0; i < 2; i++)
		CHECK(is_filled(endpoint.buffer + 4096 + 128 * i + 40, 64, i + 1));
	requests[2].wr.ud.remote_qpn = qps[1]->qp_num;
	requests[2].next = NULL;
	CHECK_EQ(ibv_post_send(qps[0], &requests[2], &refused), 0);
	CHECK_EQ(next_completion(endpoint.cq).wr_id, 2);
	CHECK(is_filled(endpoint.buffer + 4096 + 256 + 40, 64, 3));
	for (int i = 0; i < 3; i++)
		CHECK_EQ(ibv_destroy_qp(qps[i]), 0);
	CHECK_EQ(ibv_destroy_ah(handles[0]), 0);
	CHECK_EQ(ibv_destroy_ah(handles[1]), 0);
	close_endpoint(&endpoint);
}
