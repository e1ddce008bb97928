/* Work: posting sends and receives, and waiting for completions. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent.h"

/* Cuts a range of a region into `count` scatter/gather entries, the rest in the last one.
 * Returns how many were made, -1 after answering with an error. */
static int gather(char **words, struct ibv_sge *sges)
{
	uint64_t offset = number(words, "offset", 0), len = number(words, "len", 0);
	uint64_t count = number(words, "sges", 1);
	if (!text(words, "mr"))
		return 0;
	struct object *region = find(text(words, "mr"), REGION);
	if (!region || bad_number || count < 1 || count > MAX_SGES || len > UINT32_MAX)
		return region ? fail(0, "mr=NAME offset=N len=N sges=1..%d", MAX_SGES) : -1;
	/* With unchecked=1 the range may leave the region: verbs must find out. */
	if (!number(words, "unchecked", 0) && !inside(region, offset, len))
		return -1;
	uint64_t at = (uint64_t)(uintptr_t)region->mr->addr + offset, each = len / count;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t part = i + 1 == count ? len - i * each : each;
		sges[i] = (struct ibv_sge){ at + i * each, (uint32_t)part, region->mr->lkey };
	}
	return (int)count;
}

int command_recv(char **words)
{
	struct object *shared = lookup(words[1], SHARED_QUEUE);
	struct object *pair = shared ? NULL : find(words[1], QUEUE_PAIR);
	struct ibv_sge sges[MAX_SGES];
	uint64_t count = number(words, "count", 1), id = number(words, "id", 0);
	uint64_t step = number(words, "step", 0);
	int entries = pair || shared ? gather(words, sges) : -1;
	if (entries < 0)
		return -1;
	if (bad_number)
		return fail(0, "recv NAME mr=NAME offset=N len=N sges=N count=N step=N id=N");
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_recv_wr work = { .wr_id = id + i, .sg_list = sges, .num_sge = entries };
		struct ibv_recv_wr *bad;
		int code = shared ? ibv_post_srq_recv(shared->srq, &work, &bad) :
				    ibv_post_recv(pair->qp, &work, &bad);
		if (code)
			return fail(code, "receive %" PRIu64 " of %" PRIu64, i + 1, count);
		for (int entry = 0; entry < entries; entry++)
			sges[entry].addr += step;
	}
	ok("%s", "");
	return 0;
}

static const struct { const char *name; enum ibv_wr_opcode opcode; } operations[] = {
	{ "send", IBV_WR_SEND },
	{ "send_imm", IBV_WR_SEND_WITH_IMM },
	{ "send_inv", IBV_WR_SEND_WITH_INV },
	{ "write", IBV_WR_RDMA_WRITE },
	{ "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "read", IBV_WR_RDMA_READ },
	{ "cmp_swap", IBV_WR_ATOMIC_CMP_AND_SWP },
	{ "fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ "atomic_write", IBV_WR_ATOMIC_WRITE },
#if RDMA_CORE >= 45
	{ "flush", IBV_WR_FLUSH },
#endif
};

/* ATOMIC WRITE is posted to extended queue pairs alone. */
static int post_atomic_write(struct object *pair, uint64_t id, unsigned flags, uint32_t rkey,
			     uint64_t remote, uint64_t value)
{
	struct ibv_qp_ex *builder = ibv_qp_to_qp_ex(pair->qp);
	if (!builder)
		return EINVAL;
	builder->wr_id = id;
	builder->wr_flags = flags;
	ibv_wr_start(builder);
	ibv_wr_atomic_write(builder, rkey, remote, &value);
	return ibv_wr_complete(builder);
}

#if RDMA_CORE >= 45
/* So is FLUSH, of a range or of the whole region, for global visibility. */
static int post_flush(struct object *pair, uint64_t id, unsigned flags, uint32_t rkey, uint64_t remote,
		      size_t length, int is_of_region)
{
	struct ibv_qp_ex *builder = ibv_qp_to_qp_ex(pair->qp);
	if (!builder)
		return EINVAL;
	builder->wr_id = id;
	builder->wr_flags = flags;
	ibv_wr_start(builder);
	ibv_wr_flush(builder, rkey, remote, length, IBV_FLUSH_GLOBAL,
		     is_of_region ? IBV_FLUSH_MR : IBV_FLUSH_RANGE);
	return ibv_wr_complete(builder);
}
#endif

/* Posts an operation that has a call of its own; returns -1 for one that has not. */
static int post_by_call(struct object *pair, const struct ibv_send_wr *work, size_t length,
			uint64_t value, int is_of_region)
{
	uint64_t remote = work->wr.rdma.remote_addr;
	if (work->opcode == IBV_WR_ATOMIC_WRITE)
		return post_atomic_write(pair, work->wr_id, work->send_flags, work->wr.rdma.rkey,
					 remote, value);
#if RDMA_CORE >= 45
	if (work->opcode == IBV_WR_FLUSH)
		return post_flush(pair, work->wr_id, work->send_flags, work->wr.rdma.rkey, remote,
				  length, is_of_region);
#else
	(void)length, (void)is_of_region;
#endif
	return -1;
}

int command_post(char **words)
{
	struct object *pair = find(words[1], QUEUE_PAIR);
	if (!pair)
		return -1;
	struct ibv_sge sges[MAX_SGES];
	int entries = gather(words, sges);
	if (entries < 0)
		return -1;
	const char *name = text(words, "op");
	size_t operation = 0, known = sizeof operations / sizeof *operations;
	while (operation < known && (!name || strcmp(operations[operation].name, name)))
		operation++;
	uint64_t raddr = number(words, "raddr", 0), rkey = number(words, "rkey", 0);
	uint64_t count = number(words, "count", 1), id = number(words, "id", 0);
	uint64_t step = number(words, "step", 0), imm = number(words, "imm", 0);
	uint64_t add = number(words, "add", 0), swap = number(words, "swap", 0);
	uint64_t compare = number(words, "compare", 0), inv = number(words, "inv", 0);
	const char *letters = text(words, "flags");
	unsigned flags = IBV_SEND_SIGNALED;
	for (; letters && *letters; letters++)
		switch (*letters) {
		case 's': flags |= IBV_SEND_SOLICITED; break;
		case 'f': flags |= IBV_SEND_FENCE; break;
		case 'i': flags |= IBV_SEND_INLINE; break;
		case 'u': flags &= ~(unsigned)IBV_SEND_SIGNALED; break;
		default: bad_number = 1;
		}
	if (bad_number || operation == known)
		return fail(0, "post NAME op=OPERATION mr=NAME offset=N len=N sges=N raddr=N rkey=N "
			       "imm=N inv=N add=N swap=N compare=N flags=sfiu count=N step=N id=N");
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_send_wr work = {
			.wr_id = id + i, .sg_list = sges, .num_sge = entries,
			.opcode = operations[operation].opcode, .send_flags = flags,
		};
		if (work.opcode == IBV_WR_SEND_WITH_INV)
			work.invalidate_rkey = (uint32_t)inv;
		else
			work.imm_data = htobe32((uint32_t)imm);
		if (pair->ah) {
			work.wr.ud.ah = pair->ah;
			work.wr.ud.remote_qpn = pair->destination;
			work.wr.ud.remote_qkey = Q_KEY;
		} else if (work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
			   work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			int is_swap = work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
			work.wr.atomic.remote_addr = raddr;
			work.wr.atomic.rkey = (uint32_t)rkey;
			work.wr.atomic.compare_add = is_swap ? compare : add;
			work.wr.atomic.swap = swap;
		} else {
			work.wr.rdma.remote_addr = raddr + i * step;
			work.wr.rdma.rkey = (uint32_t)rkey;
		}
		struct ibv_send_wr *bad;
		int code = post_by_call(pair, &work, entries ? sges[0].length : 0, swap + i * step,
					compare != 0);
		if (code < 0)
			code = ibv_post_send(pair->qp, &work, &bad);
		if (code)
			return fail(code, "%s %" PRIu64 " of %" PRIu64, name, i + 1, count);
		for (int entry = 0; entry < entries; entry++)
			sges[entry].addr += step;
	}
	ok("%s", "");
	return 0;
}

int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void print_completion(const struct object *pair, const struct ibv_wc *wc)
{
	printf("wc id=%" PRIu64 " status=%d", wc->wr_id, wc->status);
	if (wc->status == IBV_WC_SUCCESS) { /* the rest has no meaning otherwise */
		printf(" opcode=%d len=%u", wc->opcode, wc->byte_len);
		if (wc->wc_flags & IBV_WC_WITH_IMM)
			printf(" imm=%#x", be32toh(wc->imm_data));
		/* rxe marks it with the kernel's own bit, which is another one here; that one
		 * means nothing on a reliable connection. */
		if (wc->opcode == IBV_WC_RECV &&
		    wc->wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK))
			printf(" inv=%#x", wc->invalidated_rkey);
		if (wc->opcode == IBV_WC_RECV && pair->qp->qp_type == IBV_QPT_UD)
			printf(" src=%#x", wc->src_qp);
	}
	printf("\n");
}

/* Sleeps until the queue has an event, at most until `deadline`. */
static int sleep_for_event(struct ibv_cq *cq, struct ibv_comp_channel *channel, int64_t deadline)
{
	int64_t left = deadline - now_ms();
	struct pollfd event = { .fd = channel->fd, .events = POLLIN };
	if (left <= 0 || poll(&event, 1, (int)left) <= 0)
		return 0;
	struct ibv_cq *from;
	void *unused;
	if (ibv_get_cq_event(channel, &from, &unused))
		return -1;
	ibv_ack_cq_events(cq, 1);
	return 0;
}

int command_wait(char **words)
{
	struct object *pair = find(words[1], QUEUE_PAIR);
	if (!pair)
		return -1;
	int is_send = words[2] && strcmp(words[2], "send") == 0;
	uint64_t wanted = number(words, "count", 1), limit = number(words, "ms", 1000);
	int by_event = number(words, "events", 0) != 0;
	if (bad_number || (!is_send && (!words[2] || strcmp(words[2], "recv"))))
		return fail(0, "wait NAME send|recv count=N ms=N events=0|1");
	struct ibv_cq *cq = is_send ? pair->send_cq : pair->recv_cq;
	struct ibv_comp_channel *channel = is_send ? pair->send_channel : pair->recv_channel;
	int64_t deadline = now_ms() + (int64_t)limit;
	uint64_t seen = 0;
	int armed = 0;
	while (seen < wanted) {
		struct ibv_wc wc;
		int got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0)
			return fail(errno, "poll");
		if (got > 0) {
			print_completion(pair, &wc);
			seen++;
			continue;
		}
		if (now_ms() >= deadline)
			return fail(0, "timeout: %" PRIu64 " of %" PRIu64, seen, wanted);
		/* Arm, look once more (what came in between raises no event), then sleep. */
		if (by_event && !armed) {
			if (ibv_req_notify_cq(cq, 0))
				return fail(errno, "arm");
			armed = 1;
		} else if (by_event) {
			if (sleep_for_event(cq, channel, deadline))
				return fail(errno, "completion event");
			armed = 0;
		}
	}
	ok("count=%" PRIu64, seen);
	return 0;
}
