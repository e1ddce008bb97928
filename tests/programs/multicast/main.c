/* Multicast groups as C programs use them. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "check.h"
#include "endpoint.h"

enum { GRH = 40, SLOT = 256, Q_KEY = 0x1234 };

/* A queue pair of datagrams in RTS. */
static struct ibv_qp *datagram_queue_pair(struct endpoint *endpoint)
{
	struct ibv_qp_init_attr init = {
		.send_cq = endpoint->cq,
		.recv_cq = endpoint->cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(endpoint->pd, &init);
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = Q_KEY};
	CHECK(qp != NULL);
	CHECK_EQ(ibv_modify_qp(qp, &attributes,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	attributes.qp_state = IBV_QPS_RTR;
	CHECK_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
	attributes.qp_state = IBV_QPS_RTS;
	CHECK_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	return qp;
}

static union ibv_gid group_of(const char *text)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
	CHECK_EQ(inet_pton(AF_INET, text, gid.raw + 12), 1);
	return gid;
}

static struct ibv_wc completion(struct endpoint *endpoint)
{
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(endpoint->cq, 1, &wc)) == 0)
		;
	CHECK_EQ(count, 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	return wc;
}

static void post_receive(struct endpoint *endpoint, struct ibv_qp *qp, int slot)
{
	struct ibv_sge sge = {(uintptr_t)endpoint->buffer + slot * SLOT, SLOT, endpoint->mr->lkey};
	struct ibv_recv_wr work = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
	CHECK_EQ(ibv_post_recv(qp, &work, &bad), 0);
}

/* Members receive what is sent to their group, until they leave it; one may not be destroyed before. */
static void members(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 8 * SLOT, 64);
	struct ibv_qp *sender = datagram_queue_pair(&endpoint);
	struct ibv_qp *member[2] = {datagram_queue_pair(&endpoint), datagram_queue_pair(&endpoint)};
	union ibv_gid group = group_of("239.7.8.9");
	struct ibv_device_attr device;
	CHECK_EQ(ibv_query_device(endpoint.context, &device), 0);
	CHECK(device.max_mcast_grp >= 1 && device.max_mcast_qp_attach >= 2);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(ibv_attach_mcast(member[i], &group, 0), 0);
		post_receive(&endpoint, member[i], i);
	}
	CHECK_EQ(ibv_attach_mcast(member[0], &group, 0), 0); /* again */
	CHECK_CODE(ibv_destroy_qp(member[0]), EBUSY);

	struct ibv_ah_attr to = {
		.grh = {.dgid = group, .sgid_index = endpoint.gid_index, .hop_limit = 1},
		.is_global = 1,
		.port_num = 1,
	};
	struct ibv_ah *ah = ibv_create_ah(endpoint.pd, &to);
	CHECK(ah != NULL);
	unsigned char *message = endpoint.buffer + 4 * SLOT;
	memcpy(message, "to all", 6);
	struct ibv_sge sge = {(uintptr_t)message, 6, endpoint.mr->lkey};
	struct ibv_send_wr *bad, work = {
		.wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.wr.ud = {.ah = ah, .remote_qpn = 0xffffff, .remote_qkey = Q_KEY},
	};
	CHECK_EQ(ibv_post_send(sender, &work, &bad), 0);
	unsigned seen = 0;
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc = completion(&endpoint);
		seen |= 1u << wc.wr_id;
		if (wc.wr_id == 9)
			continue;
		CHECK_EQ(wc.byte_len, GRH + 6);
		CHECK_EQ(wc.src_qp, sender->qp_num);
		CHECK_EQ(memcmp(endpoint.buffer + wc.wr_id * SLOT + GRH, "to all", 6), 0);
	}
	CHECK_EQ(seen, 1u << 9 | 3);

	/* One of them leaves; the other one receives alone. */
	CHECK_EQ(ibv_detach_mcast(member[0], &group, 0), 0);
	CHECK_CODE(ibv_detach_mcast(member[0], &group, 0), EINVAL);
	post_receive(&endpoint, member[0], 0);
	post_receive(&endpoint, member[1], 1);
	CHECK_EQ(ibv_post_send(sender, &work, &bad), 0);
	for (int i = 0; i < 2; i++)
		CHECK(completion(&endpoint).wr_id != 0);
	CHECK_EQ(ibv_detach_mcast(member[1], &group, 0), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_destroy_qp(sender), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(ibv_destroy_qp(member[i]), 0);
	close_endpoint(&endpoint);
}

/* Only queue pairs of datagrams are members, and only of groups. */
static void refusals(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 64);
	struct connection connection = connect_to_self(&endpoint, 8);
	struct ibv_qp *qp = datagram_queue_pair(&endpoint);
	union ibv_gid group = group_of("239.7.8.9"), host = group_of("10.1.2.3");
	CHECK_CODE(ibv_attach_mcast(connection.left, &group, 0), EINVAL);
	CHECK_CODE(ibv_attach_mcast(qp, &host, 0), EINVAL);
	CHECK_CODE(ibv_detach_mcast(qp, &group, 0), EINVAL);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_qp(connection.left), 0);
	CHECK_EQ(ibv_destroy_qp(connection.right), 0);
	close_endpoint(&endpoint);
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {{"members", members}, {"refusals", refusals}};
	limit_time(20);
	return run_scenario(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
