/* Waits until the device is quiet, and prints completions, events, descriptors and memory. */
#define _GNU_SOURCE
#include "sequences.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEPT 256
#define QUIET_MS 6
#define LONG_MS 120
#define UNSIGNALED_MS 300
/* A busy machine may let this process stand still for longer than all of these: so many polls find nothing, too. */
#define QUIET_POLLS 20

struct kept {
	uint64_t key; /* completion queue, queue pair, direction */
	unsigned order;
	char text[256];
};
static struct kept kept[KEPT];
static unsigned kept_count;

static uint64_t milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The type of a queue pair by its number, or 0. */
static unsigned type_of(uint32_t number)
{
	for (int i = 0; i < PAIRS; i++)
		if (t.pairs[i].qp && t.pairs[i].qp->qp_num == number)
			return t.pairs[i].type;
	return 0;
}

/* The header before a datagram has addresses. */
static void blank_header(uint64_t address)
{
	for (int i = 0; i < REGIONS; i++) {
		uint64_t start = (uintptr_t)t.regions[i].memory;
		if (address >= start && address + 40 <= start + BUFFER)
			memset((void *)(uintptr_t)address, 0xee, 40);
	}
}

static void keep(int queue, const struct ibv_wc *wc)
{
	int place = (int)(wc->wr_id >> 40) & 0xff;
	unsigned direction = (wc->wr_id >> 32) & 0xff;
	int is_signaled = (int)(wc->wr_id >> 31) & 1;
	if (direction == 0 && place < PAIRS && is_signaled && t.pairs[place].waiting > 0)
		t.pairs[place].waiting--;
	if (direction == 0 && place < PAIRS && wc->status != IBV_WC_SUCCESS)
		t.pairs[place].is_failed = 1;
	unsigned type = type_of(wc->qp_num);
	int is_received_datagram = direction != 0 && type == IBV_QPT_UD;
	if (is_received_datagram && wc->status == IBV_WC_SUCCESS)
		blank_header(direction == 1 && place < PAIRS ? t.pairs[place].receives[wc->wr_id % 64] : t.srq_receives[wc->wr_id % 64]);
	if (kept_count == KEPT)
		return;
	struct kept *it = &kept[kept_count];
	it->key = (uint64_t)queue << 48 | wc->wr_id >> 32;
	it->order = kept_count++;
	int len = snprintf(it->text, sizeof it->text, "completion cq=%s %c%u.%u status=%u qp=%s type=%u",
			   index_name('c', queue), "srq"[direction % 3], place, (unsigned)(wc->wr_id & 0x7fffffff), wc->status,
			   named('Q', wc->qp_num), type);
	if (wc->status == IBV_WC_SUCCESS) {
		/* The length of a SEND or WRITE is given for receives, READs and atomics only, its data for receives. */
		int has_length = direction != 0 || wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_COMP_SWAP ||
				 wc->opcode == IBV_WC_FETCH_ADD;
		snprintf(it->text + len, sizeof it->text - (size_t)len, " opcode=%u flags=%#x bytes=%u imm=%#x src=%s slid=%u sl=%u",
			 wc->opcode, wc->wc_flags, has_length ? wc->byte_len : 0,
			 direction != 0 && wc->wc_flags & IBV_WC_WITH_IMM ? be32toh(wc->imm_data) : 0,
			 is_received_datagram ? named('Q', wc->src_qp) : "-", wc->slid, wc->sl);
	}
}

static int poll_all(void)
{
	int count = 0;
	for (int i = 0; i < CQS; i++) {
		struct ibv_wc some[16];
		int got = 0;
		while (t.queues[i].cq && (got = ibv_poll_cq(t.queues[i].cq, 16, some)) > 0) {
			count += got;
			for (int n = 0; n < got; n++)
				keep(i, &some[n]);
		}
		if (got < 0)
			note("ibv_poll_cq cq=%s -> ret=negative", index_name('c', i));
	}
	return count;
}

static int waiting(void)
{
	int count = 0;
	for (int i = 0; i < PAIRS; i++)
		count += t.pairs[i].qp && t.pairs[i].waiting > 0 && t.pairs[i].state >= IBV_QPS_RTS;
	return count;
}

static int by_key(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->order < y->order ? -1 : 1;
}

static const char *bits(int descriptor)
{
	static char text[4][16];
	static unsigned turn;
	char *it = text[turn++ % 4];
	struct pollfd asked = { .fd = descriptor, .events = POLLIN | POLLOUT | POLLPRI };
	if (poll(&asked, 1, 0) < 0)
		return "error";
	snprintf(it, sizeof text[0], "%s%s%s", asked.revents & POLLIN ? "i" : "", asked.revents & POLLOUT ? "o" : "",
		 asked.revents & ~(POLLIN | POLLOUT) ? "x" : "");
	return it;
}

static const char *subject(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		for (int i = 0; i < CQS; i++)
			if (t.queues[i].cq == event->element.cq)
				return t.queues[i].is_small ? "small" : index_name('c', i);
		return "another queue";
	case IBV_EVENT_QP_FATAL ... IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		if (event->event_type == IBV_EVENT_DEVICE_FATAL)
			return "device";
		for (int i = 0; i < PAIRS; i++)
			if (t.pairs[i].qp == event->element.qp)
				return index_name('q', i);
		return "another pair";
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		for (int i = 0; i < SRQS; i++)
			if (t.srqs[i] == event->element.srq)
				return index_name('s', i);
		return "another shared queue";
	default:
		return "port";
	}
}

static int text_order(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void print_async_events(void)
{
	char lines[16][64];
	unsigned count = 0;
	struct pollfd asked = { .fd = t.context->async_fd, .events = POLLIN };
	while (count < 16 && poll(&asked, 1, 0) == 1 && (asked.revents & POLLIN)) {
		struct ibv_async_event event;
		if (ibv_get_async_event(t.context, &event))
			break;
		snprintf(lines[count++], sizeof lines[0], "async type=%u of=%s", event.event_type, subject(&event));
		ibv_ack_async_event(&event);
	}
	qsort(lines, count, sizeof lines[0], text_order);
	for (unsigned i = 0; i < count; i++)
		note("%s", lines[i]);
}

static void print_memory(void)
{
	for (int i = 0; i < REGIONS; i++) {
		uint32_t sum = sum_of(t.regions[i].memory, BUFFER);
		if (sum != t.regions[i].printed_sum)
			note("memory %s sum=%08x", index_name('m', i), sum);
		t.regions[i].printed_sum = sum;
	}
}

void settle(void)
{
	uint64_t from = milliseconds(), last = from;
	int unsignaled = 0;
	unsigned polls = 0;
	for (int i = 0; i < PAIRS; i++) {
		unsignaled |= t.pairs[i].qp && t.pairs[i].unsignaled && t.pairs[i].state == IBV_QPS_RTS;
		t.pairs[i].unsignaled = 0;
	}
	for (;;) {
		uint64_t now = milliseconds();
		polls++;
		if (poll_all()) {
			last = now;
			polls = 0;
		}
		/* The failure of a request that is not signaled is known by its end alone. */
		unsigned quiet = waiting() ? LONG_MS : unsignaled ? UNSIGNALED_MS : QUIET_MS;
		if (polls >= QUIET_POLLS && (now - last > quiet || now - from > 1000))
			break;
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	qsort(kept, kept_count, sizeof kept[0], by_key);
	for (unsigned i = 0; i < kept_count; i++)
		note("%s", kept[i].text);
	kept_count = 0;
	printf("descriptors async=%s", bits(t.context->async_fd));
	for (int i = 0; i < CHANNELS; i++) {
		if (t.channels[i])
			printf(" %s=%s", index_name('h', i), bits(t.channels[i]->fd));
	}
	putchar('\n');
	print_async_events();
	print_memory();
}

/* Polls a queue as a call of its own; what it finds is printed by the next settle. */
static void poll_cq(void)
{
	int place = some_queue();
	uint32_t entries = ONE_OF(0, 1, 2, 16, 1);
	call("ibv_poll_cq");
	arg("cq=%s entries=%u", index_name('c', place), entries);
	if (place >= 0) {
		struct ibv_wc some[16];
		int got = ibv_poll_cq(t.queues[place].cq, (int)entries, some);
		result_text(got < 0 ? "negative" : "count");
		out("got=%d", got);
		for (int i = 0; i < got; i++)
			keep(place, &some[i]);
	}
	end_call();
}

static void settle_alone(void)
{
	note("settle");
	settle();
}

const struct step settle_steps[] = {
	{ poll_cq, 5 },
	{ settle_alone, 2 },
	{ 0 },
};
