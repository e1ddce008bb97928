#include "striped.h"

#include <unistd.h>

#include "check.h"

/* Finds the address of IPv4. */
static void find_gid(struct rail *rail)
{
	static const unsigned char mapped[12] = {[10] = 0xff, 0xff};
	struct ibv_port_attr port;
	CHECK_EQ(ibv_query_port(rail->context, 1, &port), 0);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		CHECK_EQ(ibv_query_gid(rail->context, 1, i, &rail->gid), 0);
		rail->gid_index = i;
		if (memcmp(&rail->gid, mapped, sizeof mapped) == 0)
			return;
	}
	CHECK(!"an address of IPv4");
}

int open_rails(struct rail rails[MAX_RAILS])
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list);
	CHECK(count > 0 && count <= MAX_RAILS);
	size_t length = (size_t)RECEIVES * MESSAGE;
	for (int i = 0; i < count; i++) {
		struct rail *rail = &rails[i];
		rail->number = i;
		CHECK(rail->context = ibv_open_device(list[i]));
		CHECK(rail->pd = ibv_alloc_pd(rail->context));
		CHECK(rail->cq = ibv_create_cq(rail->context, 2 * RECEIVES, NULL, NULL, 0));
		CHECK(rail->buffer = aligned_alloc(4096, length));
		CHECK(rail->mr = ibv_reg_mr(rail->pd, rail->buffer, length, IBV_ACCESS_LOCAL_WRITE));
		find_gid(rail);
	}
	ibv_free_device_list(list);
	return count;
}

void renew(struct rail *rail)
{
	struct ibv_wc wc[16];
	if (rail->qp)
		CHECK_EQ(ibv_destroy_qp(rail->qp), 0);
	/* Completions of the one before. */
	while (ibv_poll_cq(rail->cq, 16, wc) > 0) {
	}
	struct ibv_qp_init_attr attr = {
		.send_cq = rail->cq,
		.recv_cq = rail->cq,
		.cap = {WINDOW, RECEIVES, 1, 1, 0},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	CHECK(rail->qp = ibv_create_qp(rail->pd, &attr));
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	CHECK_EQ(ibv_modify_qp(rail->qp, &init,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		 0);
}

void join(struct rail *rail, const struct word *other)
{
	struct ibv_port_attr port;
	CHECK_EQ(ibv_query_port(rail->context, 1, &port), 0);
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = other->qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = other->gid, .sgid_index = rail->gid_index, .hop_limit = 64},
		},
	};
	/* The link may be down: then there is no way yet, and the rail is tried again. */
	if (ibv_modify_qp(rail->qp, &rtr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0) {
		CHECK_EQ(ibv_destroy_qp(rail->qp), 0);
		rail->qp = NULL;
		return;
	}
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	CHECK_EQ(ibv_modify_qp(rail->qp, &rts,
			       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		 0);
}

struct word word_of(const struct rail *rail)
{
	return (struct word){
		.kind = CONNECT,
		.rail = rail->number,
		.qpn = rail->qp ? rail->qp->qp_num : 0,
		.gid = rail->gid,
	};
}

bool is_active(const struct rail *rail)
{
	struct ibv_port_attr port;
	CHECK_EQ(ibv_query_port(rail->context, 1, &port), 0);
	return port.state == IBV_PORT_ACTIVE;
}

void tell(int socket, const struct word *word)
{
	CHECK_EQ(write(socket, word, sizeof *word), sizeof *word);
}

struct word hear(int socket)
{
	struct word word;
	size_t got = 0;
	while (got < sizeof word) {
		ssize_t more = read(socket, (char *)&word + got, sizeof word - got);
		CHECK(more > 0);
		got += (size_t)more;
	}
	return word;
}
