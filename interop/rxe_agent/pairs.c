/* Queue pairs: making, connecting, asking after and ending them. Shared receive queues. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"

void destroy_qp(struct object *pair)
{
	if (pair->qp)
		ibv_destroy_qp(pair->qp);
	if (pair->ah)
		ibv_destroy_ah(pair->ah);
	if (pair->send_cq)
		ibv_destroy_cq(pair->send_cq);
	if (pair->recv_cq)
		ibv_destroy_cq(pair->recv_cq);
	if (pair->send_channel)
		ibv_destroy_comp_channel(pair->send_channel);
	if (pair->recv_channel)
		ibv_destroy_comp_channel(pair->recv_channel);
}

static void print_gid(const union ibv_gid *gid)
{
	for (int i = 0; i < 16; i++)
		printf("%02x", gid->raw[i]);
}

/* The first entry of the GID table that is an IPv4 (or else a global IPv6) address; entry 0 is
 * the link-local one. Returns -1 if there is none. */
static int find_gid(int want_v4, union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	static const uint8_t none[16];
	for (int index = 1; index < 256 && ibv_query_gid(context, 1, index, gid) == 0; index++) {
		int is_v4 = memcmp(gid->raw, mapped, sizeof mapped) == 0;
		int is_local = gid->raw[0] == 0xfe && gid->raw[1] == 0x80;
		if (memcmp(gid->raw, none, sizeof none) && is_v4 == want_v4 && !is_local)
			return index;
	}
	return -1;
}

int command_srq(char **words)
{
	struct object *queue = place(words[1]);
	uint64_t depth = number(words, "max_wr", 64);
	if (!queue)
		return -1;
	if (bad_number || depth > 16384)
		return fail(0, "srq NAME max_wr=N");
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = (uint32_t)depth, .max_sge = MAX_SRQ_SGES },
	};
	queue->srq = ibv_create_srq(pd, &init);
	if (!queue->srq)
		return fail(errno, "shared receive queue %s", queue->name);
	queue->kind = SHARED_QUEUE;
	ok("%s", "");
	return 0;
}

/* To INIT, and further to RTS if it is for datagrams. Returns an errno or 0. */
static int begin(struct object *pair, int access)
{
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_INIT, .port_num = 1,
					  .qp_access_flags = (unsigned)access, .qkey = Q_KEY,
					  .sq_psn = pair->psn };
	int is_ud = pair->qp->qp_type == IBV_QPT_UD;
	int code = ibv_modify_qp(pair->qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				 IBV_QP_PORT | (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	if (code || !is_ud)
		return code;
	attributes.qp_state = IBV_QPS_RTR;
	code = ibv_modify_qp(pair->qp, &attributes, IBV_QP_STATE);
	if (code)
		return code;
	attributes.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(pair->qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/* The service of that name, RC where there is none; -1 if it is unknown. */
static int service_type(const char *name)
{
	if (!name || strcmp(name, "rc") == 0)
		return IBV_QPT_RC;
	if (strcmp(name, "uc") == 0)
		return IBV_QPT_UC;
	return strcmp(name, "ud") == 0 ? IBV_QPT_UD : -1;
}

/* With the operations that ibv_post_send does not have. */
static struct ibv_qp *create_extended(const struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex extended = {
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
#if RDMA_CORE >= 45
	extended.send_ops_flags |= IBV_QP_EX_WITH_FLUSH;
#endif
	return ibv_create_qp_ex(context, &extended);
}

int command_qp(char **words)
{
	struct object *pair = place(words[1]);
	uint64_t depth_send = number(words, "send_wr", 64), depth_recv = number(words, "recv_wr", 64);
	uint64_t family = number(words, "family", 4), inline_len = number(words, "inline", 0);
	uint64_t psn = number(words, "psn", UINT64_MAX);
	const char *rights = text(words, "access");
	int type = service_type(text(words, "service"));
	int access = access_flags(rights ? rights : "wra");
	if (!pair)
		return -1;
	if (bad_number || access < 0 || type < 0 || depth_send > 16384 || depth_recv > 16384)
		return fail(0, "qp NAME family=4|6 service=rc|uc|ud srq=NAME send_wr=N recv_wr=N "
			       "inline=N psn=N access=wra");
	struct object *shared = NULL;
	if (text(words, "srq") && !(shared = find(text(words, "srq"), SHARED_QUEUE)))
		return -1;
	if (psn == UINT64_MAX && getrandom(&psn, sizeof psn, 0) != sizeof psn)
		return fail(errno, "random PSN");
	pair->psn = (uint32_t)psn & 0xffffff;
	union ibv_gid gid;
	int gid_index = find_gid(family == 4, &gid);
	if (gid_index < 0)
		return fail(0, "no IPv%d address", (int)family);
	pair->gid_index = (uint8_t)gid_index;

	pair->send_channel = ibv_create_comp_channel(context);
	pair->recv_channel = ibv_create_comp_channel(context);
	if (pair->send_channel && pair->recv_channel) {
		pair->send_cq = ibv_create_cq(context, (int)depth_send + 1, NULL, pair->send_channel, 0);
		pair->recv_cq = ibv_create_cq(context, (int)depth_recv + 1, NULL, pair->recv_channel, 0);
	}
	if (!pair->send_cq || !pair->recv_cq) {
		int code = errno;
		destroy_qp(pair);
		return fail(code, "completion queues of %s", pair->name);
	}
	struct ibv_qp_init_attr init = {
		.send_cq = pair->send_cq,
		.recv_cq = pair->recv_cq,
		.srq = shared ? shared->srq : NULL,
		.qp_type = (enum ibv_qp_type)type,
		.cap = { .max_send_wr = (uint32_t)depth_send, .max_recv_wr = (uint32_t)depth_recv,
			 .max_send_sge = MAX_SGES, .max_recv_sge = MAX_SGES,
			 .max_inline_data = (uint32_t)inline_len },
	};
	pair->qp = number(words, "extended", 0) ? create_extended(&init) : ibv_create_qp(pd, &init);
	int code = pair->qp ? begin(pair, access) : errno;
	if (code) {
		destroy_qp(pair);
		return fail(code, "queue pair %s", pair->name);
	}
	pair->kind = QUEUE_PAIR;
	printf("ok qpn=%#x psn=%#x gid=", pair->qp->qp_num, pair->psn);
	print_gid(&gid);
	printf("\n");
	return 0;
}

static int parse_gid(const char *from, union ibv_gid *gid)
{
	if (!from || strlen(from) != 32)
		return -1;
	for (int i = 0; i < 16; i++) {
		unsigned byte;
		if (sscanf(from + 2 * i, "%2x", &byte) != 1)
			return -1;
		gid->raw[i] = (uint8_t)byte;
	}
	return 0;
}

static int mtu_code(uint64_t bytes)
{
	for (int code = IBV_MTU_256; code <= IBV_MTU_4096; code++)
		if (bytes == 128u << code)
			return code;
	return 0;
}

int command_connect(char **words)
{
	struct object *pair = find(words[1], QUEUE_PAIR);
	if (!pair)
		return -1;
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)mtu_code(number(words, "mtu", 1024)),
		.dest_qp_num = (uint32_t)number(words, "qpn", 0),
		.rq_psn = (uint32_t)number(words, "psn", 0),
		.max_dest_rd_atomic = (uint8_t)number(words, "dest_rd_atomic", 16),
		.min_rnr_timer = (uint8_t)number(words, "min_rnr_timer", 12),
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .hop_limit = 64, .sgid_index = pair->gid_index,
				      .traffic_class = (uint8_t)number(words, "tclass", 0) } },
		.timeout = (uint8_t)number(words, "timeout", 14),
		.retry_cnt = (uint8_t)number(words, "retry", 7),
		.rnr_retry = (uint8_t)number(words, "rnr_retry", 7),
		.sq_psn = pair->psn,
		.max_rd_atomic = (uint8_t)number(words, "rd_atomic", 16),
	};
	if (bad_number || !attributes.path_mtu || !attributes.dest_qp_num ||
	    parse_gid(text(words, "gid"), &attributes.ah_attr.grh.dgid))
		return fail(0, "connect NAME qpn=N psn=N gid=32DIGITS mtu=BYTES timeout=N retry=N "
			       "rnr_retry=N min_rnr_timer=N rd_atomic=N dest_rd_atomic=N tclass=N");
	if (pair->qp->qp_type == IBV_QPT_UD) {
		if (pair->ah)
			ibv_destroy_ah(pair->ah);
		pair->ah = ibv_create_ah(pd, &attributes.ah_attr);
		if (!pair->ah)
			return fail(errno, "address handle for %s", pair->name);
		pair->destination = attributes.dest_qp_num;
		ok("%s", "");
		return 0;
	}
	/* An unreliable connection repeats nothing: what says how does not exist there. */
	int is_rc = pair->qp->qp_type == IBV_QPT_RC;
	int receive = is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
	int send = is_rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_MAX_QP_RD_ATOMIC : 0;
	int code = ibv_modify_qp(pair->qp, &attributes,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | receive);
	if (code)
		return fail(code, "%s to ready to receive", pair->name);
	attributes.qp_state = IBV_QPS_RTS;
	code = ibv_modify_qp(pair->qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN | send);
	if (code)
		return fail(code, "%s to ready to send", pair->name);
	ok("%s", "");
	return 0;
}

/* rxe takes the packets of a group once the IP stack does: an interface is in the group, too. */
static int join_group(struct object *pair, const union ibv_gid *group)
{
	struct ibv_gid_entry entry;
	int code = ibv_query_gid_ex(context, 1, pair->gid_index, &entry, 0);
	if (code)
		return code;
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	int is_ipv4 = memcmp(group->raw, mapped, sizeof mapped) == 0;
	pair->group_socket = socket(is_ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
	if (pair->group_socket < 0)
		return errno;
	struct ip_mreqn ipv4 = { .imr_ifindex = (int)entry.ndev_ifindex };
	struct ipv6_mreq ipv6 = { .ipv6mr_interface = entry.ndev_ifindex };
	memcpy(&ipv4.imr_multiaddr, group->raw + 12, 4);
	memcpy(&ipv6.ipv6mr_multiaddr, group->raw, 16);
	code = is_ipv4 ? setsockopt(pair->group_socket, IPPROTO_IP, IP_ADD_MEMBERSHIP, &ipv4,
				    sizeof ipv4) :
			 setsockopt(pair->group_socket, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &ipv6,
				    sizeof ipv6);
	return code ? errno : 0;
}

int command_group(char **words)
{
	struct object *pair = find(words[1], QUEUE_PAIR);
	union ibv_gid group;
	if (!pair)
		return -1;
	if (parse_gid(text(words, "gid"), &group))
		return fail(0, "attach|detach NAME gid=32DIGITS");
	int attaches = strcmp(words[0], "attach") == 0;
	int code = attaches ? join_group(pair, &group) : 0;
	if (!code)
		code = attaches ? ibv_attach_mcast(pair->qp, &group, 0) :
				  ibv_detach_mcast(pair->qp, &group, 0);
	if (code)
		return fail(code, "%s %s", words[0], pair->name);
	if (!attaches)
		close(pair->group_socket);
	ok("%s", "");
	return 0;
}

static const char *const states[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERROR" };

int command_state(char **words)
{
	struct object *pair = find(words[1], QUEUE_PAIR);
	if (!pair)
		return -1;
	struct ibv_qp_attr attributes = { 0 };
	struct ibv_qp_init_attr init;
	int code = ibv_query_qp(pair->qp, &attributes, IBV_QP_STATE, &init);
	if (code)
		return fail(code, "query %s", pair->name);
	unsigned state = attributes.qp_state;
	ok("state=%s", state < sizeof states / sizeof *states ? states[state] : "UNKNOWN");
	return 0;
}

int command_error(char **words)
{
	struct object *pair = find(words[1], QUEUE_PAIR);
	if (!pair)
		return -1;
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };
	int code = ibv_modify_qp(pair->qp, &attributes, IBV_QP_STATE);
	if (code)
		return fail(code, "%s to error", pair->name);
	ok("%s", "");
	return 0;
}
