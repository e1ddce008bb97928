/*
 * Queue pairs: per lane one to the next rank and one to the previous, connected through the
 * bootstrap, with the memory that the neighbours write to.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "ring.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
struct ibv_comp_channel *channel;
struct ibv_cq *cq;
struct lane lanes[MAX_LANES];
struct buffer slots, records;
unsigned next_rank, prev_rank;

/* As much data, and as many credits and windows, as can be under way at once, see the protocol. */
static unsigned receive_depth(void) { return 2 * (unsigned)options.slots + 2; }

/* What was acknowledged to us by a credit may still wait for its completion: twice is enough, and
 * senders look before they post. */
unsigned send_depth(void) { return 3 * (unsigned)options.slots + 4; }

/* Memory for a device: zeros, registered. */
struct buffer make_buffer(size_t bytes, int access)
{
	size_t page = 4096, size = (bytes + page) / page * page;
	struct buffer made = { .at = aligned_alloc(page, size) };
	if (!made.at)
		fail(OURS, "no memory for %zu bytes", bytes);
	memset(made.at, 0, size);
	made.mr = ibv_reg_mr(pd, made.at, size, access);
	if (!made.mr)
		fail(OURS, "cannot register %zu bytes: %s (see ulimit -l)", size, strerror(errno));
	return made;
}

/* Opens the device; returns the path MTU of its port in bytes, and its GID. */
static unsigned open_device(union ibv_gid *gid)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	for (int i = 0; i < count && !context; i++)
		if (!options.device || !strcmp(ibv_get_device_name(list[i]), options.device))
			context = ibv_open_device(list[i]);
	if (!context)
		fail(OURS, "no RDMA device %s; ibv_devices lists them", options.device ? options.device : "");
	ibv_free_device_list(list);
	struct ibv_port_attr port;
	if (ibv_query_port(context, (uint8_t)options.port, &port) || port.state != IBV_PORT_ACTIVE)
		fail(OURS, "port %" PRIu64 " of %s is not active", options.port, ibv_get_device_name(context->device));
	/* Unless told which: the first IPv4 address that speaks RoCE v2. */
	for (int i = 0; options.gid_index == UINT64_MAX && i < port.gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		if (!ibv_query_gid_ex(context, (uint32_t)options.port, (uint32_t)i, &entry, 0) &&
		    entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    IN6_IS_ADDR_V4MAPPED((struct in6_addr *)entry.gid.raw))
			options.gid_index = (uint64_t)i;
	}
	if (options.gid_index == UINT64_MAX)
		fail(OURS, "no IPv4 address on the device; choose one of ibv_devinfo -v with --gid-index");
	if (ibv_query_gid(context, (uint8_t)options.port, (int)options.gid_index, gid))
		fail(OURS, "no GID %" PRIu64 ": %s", options.gid_index, strerror(errno));
	return 128u << port.active_mtu;
}

static struct link make_link(unsigned neighbour, uint8_t *staging, uint64_t pitch, uint64_t far_pitch)
{
	struct link link = { .neighbour = neighbour, .slots = staging, .pitch = pitch, .far_pitch = far_pitch,
			     .arrivals = calloc(options.slots, sizeof *link.arrivals) };
	if (!link.arrivals)
		fail(OURS, "no memory");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = send_depth(), .max_recv_wr = receive_depth(),
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)options.port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	if (getrandom(&link.psn, sizeof link.psn, 0) != sizeof link.psn)
		fail(OURS, "no random numbers");
	link.psn &= 0xffffff;
	link.qp = ibv_create_qp(pd, &init);
	if (!link.qp || ibv_modify_qp(link.qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						 IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail(OURS, "cannot make a queue pair: %s", strerror(errno));
	return link;
}

/* Connects a link to what a NEXT or PREV line says of its other end. */
static void connect_link(struct link *link, const char *line)
{
	char gid[64];
	unsigned mtu_bytes = (unsigned)number(line, "mtu"), mtu = IBV_MTU_256;
	while (mtu < IBV_MTU_4096 && 128u << mtu < mtu_bytes)
		mtu++;
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .min_rnr_timer = 12,
		.dest_qp_num = (uint32_t)number(line, "qpn"), .rq_psn = (uint32_t)number(line, "psn"),
		.max_dest_rd_atomic = 1, .max_rd_atomic = 1, .sq_psn = link->psn,
		.timeout = (uint8_t)options.timeout, .retry_cnt = (uint8_t)options.retry, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = (uint8_t)options.port,
			     .grh = { .hop_limit = 64, .sgid_index = (uint8_t)options.gid_index,
				      .traffic_class = (uint8_t)options.traffic_class } },
	};
	if (!find(line, "gid", gid, sizeof gid) ||
	    inet_pton(AF_INET6, gid, attributes.ah_attr.grh.dgid.raw) != 1 || 128u << mtu != mtu_bytes)
		fail(OURS, "the bootstrap server says neither address nor MTU in `%.200s`", line);
	int code = ibv_modify_qp(link->qp, &attributes,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attributes.qp_state = IBV_QPS_RTS;
	if (!code)
		code = ibv_modify_qp(link->qp, &attributes,
				     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (code)
		fail(OURS, "cannot connect to rank %u at %s: %s", link->neighbour, gid, strerror(code));
}

uint64_t work_id(const struct lane *lane, const struct link *link, unsigned flags)
{
	return (uint64_t)(lane - lanes) << LANE_SHIFT | (link == &lane->prev ? TO_PREV : 0) | flags;
}

/* Arms a receive. Immediate data need no place in memory. */
void arm(struct lane *lane, struct link *link)
{
	struct ibv_recv_wr *bad, work = { .wr_id = work_id(lane, link, RECEIVE) };
	int code = ibv_post_recv(link->qp, &work, &bad);
	if (code)
		fail(OURS, "cannot post a receive: %s", strerror(code));
}

/* Meets the other ranks: afterwards all queue pairs are connected and all receives armed. */
void join(void)
{
	char host[256] = "unknown", gid_text[64], about[256];
	union ibv_gid gid;
	unsigned mtu = open_device(&gid);
	inet_ntop(AF_INET6, gid.raw, gid_text, sizeof gid_text);
	gethostname(host, sizeof host - 1);
	connect_to_hub();
	char progression[64];
	snprintf(progression, sizeof progression, options.step ? "job.step=%" PRIu64 : "job.factor=%" PRIu64,
		 options.step ? options.step : options.factor);
	say("HELLO version=2 rank=%u size=%u host=%s pid=%d ring.lanes=%" PRIu64 " ring.slots=%" PRIu64
	    " ring.slot_bytes=%" PRIu64 " ring.small_limit=%" PRIu64 " ring.split=%" PRIu64
	    " job.collective=allreduce job.type=%s job.op=%s job.root=0 job.min=%" PRIu64 " job.max=%" PRIu64
	    " %s job.iterations=%" PRIu64 " job.warmup=%" PRIu64 " job.check=%" PRIu64 " job.placement=%s",
	    self, ranks, encode(host), getpid(), options.lanes, options.slots, options.slot_bytes,
	    options.small_limit, options.split, options.type, options.op, options.min, options.max,
	    progression, options.iterations, options.warmup, options.check, options.placement);
	expect("WELCOME");

	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	unsigned completions = 2 * options.lanes * (send_depth() + receive_depth());
	cq = pd && channel ? ibv_create_cq(context, (int)completions, NULL, channel, 0) : NULL;
	if (!cq)
		fail(OURS, "cannot make a completion queue: %s", strerror(errno));
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	/* What the next rank writes goes the small way, and needs smaller slots. */
	uint64_t limit = options.small_limit < options.slot_bytes ? options.small_limit : options.slot_bytes;
	uint64_t wide = options.slot_bytes, narrow = limit < 8 ? 8 : limit;
	slots = make_buffer(options.lanes * options.slots * (wide + narrow), access);
	records = make_buffer(2 * MAX_LANES * sizeof(struct record), access);
	next_rank = (self + 1) % ranks;
	prev_rank = (self + ranks - 1) % ranks;
	for (unsigned l = 0; l < options.lanes; l++) {
		struct lane *lane = &lanes[l];
		uint8_t *here = slots.at + l * options.slots * (wide + narrow);
		lane->prev = make_link(prev_rank, here, wide, narrow);
		lane->next = make_link(next_rank, here + options.slots * wide, narrow, wide);
		say("LANE lane=%u mtu=%u next.gid=%s next.qpn=%#x next.psn=%#x next.slots=%#" PRIxPTR
		    " next.key=%#x next.window=%#" PRIxPTR " next.window_key=%#x prev.gid=%s prev.qpn=%#x"
		    " prev.psn=%#x prev.slots=%#" PRIxPTR " prev.key=%#x", l, mtu,
		    gid_text, lane->next.qp->qp_num, lane->next.psn, (uintptr_t)lane->next.slots,
		    slots.mr->rkey, (uintptr_t)records.at + l * sizeof(struct record), records.mr->rkey,
		    gid_text, lane->prev.qp->qp_num, lane->prev.psn, (uintptr_t)lane->prev.slots,
		    slots.mr->rkey);
	}
	for (unsigned lines = 0; lines < 2 * options.lanes; lines++) {
		char *line = hear((int)options.patience * 1000);
		bool is_next = line && !strncmp(line, "NEXT ", 5);
		if (!is_next && !(line && !strncmp(line, "PREV ", 5)))
			fail(REFUSED, "the bootstrap server says `%.200s` where NEXT or PREV belongs", line ? line : "nothing");
		uint64_t l = number(line, "lane");
		if (l >= options.lanes)
			fail(REFUSED, "the bootstrap server speaks of a lane %" PRIu64, l);
		struct lane *lane = &lanes[l];
		struct link *link = is_next ? &lane->next : &lane->prev;
		connect_link(link, line);
		link->far_slots = number(line, "slots");
		link->far_key = (uint32_t)number(line, "key");
		if (!is_next) {
			lane->prev_record = number(line, "window");
			lane->prev_record_key = (uint32_t)number(line, "window_key");
		}
	}
	for (struct lane *lane = lanes; lane < lanes + options.lanes; lane++) {
		for (unsigned i = 0; i < receive_depth(); i++) {
			arm(lane, &lane->prev);
			arm(lane, &lane->next);
		}
	}
	say("READY");
	expect("GO");
	snprintf(about, sizeof about, "[%s] GID %" PRIu64 " %s MTU %u", ibv_get_device_name(context->device),
		 options.gid_index, gid_text, mtu);
	say("REPORT kind=device host=%s pid=%d devices=%s", encode(host), getpid(), encode(about));
}
