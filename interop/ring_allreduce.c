/*
 * ring_allreduce: a rank of a ring allreduce, on plain libibverbs.
 *
 * It joins a ring whose rank 0 is `roce allreduce`: it speaks the bootstrap and the data protocol
 * of docs/ring-protocol.md, runs the sizes asked for, checks every result and reports. Nothing in
 * it belongs to one kind of device: it runs on the kernel's rdma_rxe and on a network card. The
 * other ranks may be anything that speaks the protocol.
 *
 * Here, from top to bottom: messages, one operation, the measurement, the command line. Beside it in
 * ring/: the bootstrap, the queue pairs, the arithmetic.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/ring.h"

/* ---- messages: what travels is RDMA WRITEs with an immediate that says what it was -------- */

enum kind { DATA_SLOT, DATA_WINDOW, CREDIT, WINDOW }; /* bits 31..30 of the immediate */

#define COUNT_MASK 0x3fffffffu

static void post(struct lane *lane, struct link *link, const void *from, uint32_t len, uint32_t local_key,
		 uint64_t to, uint32_t remote_key, enum kind kind, uint32_t rest)
{
	struct ibv_sge piece = { .addr = (uintptr_t)from, .length = len, .lkey = local_key };
	struct ibv_send_wr *bad, work = {
		.wr_id = work_id(lane, link, 0), .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED, .sg_list = &piece, .num_sge = len ? 1 : 0,
		.imm_data = htonl((uint32_t)kind << 30 | rest),
		.wr.rdma = { .remote_addr = to, .rkey = remote_key },
	};
	int code = ibv_post_send(link->qp, &work, &bad);
	if (code)
		fail(OURS, "cannot post a send to rank %u: %s", link->neighbour, strerror(code));
	link->unfinished++;
}

/* Tells a neighbour how many of its messages are consumed, when that is worth a message. */
static bool give_credit(struct lane *lane, struct link *link)
{
	unsigned worth = options.slots / 4 ? (unsigned)options.slots / 4 : 1;
	if (link->consumed - link->reported < worth || link->unfinished == send_depth())
		return false;
	link->reported = link->consumed;
	post(lane, link, NULL, 0, 0, 0, 0, CREDIT, link->consumed & COUNT_MASK);
	return true;
}

static void at_least(uint32_t *count, uint32_t known)
{
	if ((int32_t)(known - *count) > 0)
		*count = known;
}

/* Data: it is looked at when its turn comes. */
static void note_data(struct link *link, uint32_t immediate, uint32_t len)
{
	/* The neighbour may have finished the operation that is under way here. */
	uint32_t known = link->reported;
	at_least(&known, link->consumed_before);
	if (link->arrived - known == options.slots)
		blame(link->neighbour, "it sent more than it has credit for");
	link->arrivals[link->arrived++ % options.slots] = (struct message){ immediate, len };
}

/* Credit, or where the next rank's output lies. Its receive is armed again by now, so that what this
 * allows may be sent. A credit may be older than what we know by now. */
static void note_control(struct lane *lane, struct link *link, uint32_t immediate, uint32_t len)
{
	uint32_t unsaid = (link->sent - immediate) & COUNT_MASK;
	const struct record *record = (struct record *)records.at + (lane - lanes);
	if (immediate >> 30 == WINDOW && link == &lane->next && len == sizeof *record) {
		lane->windows++;
		lane->window_tag = immediate & COUNT_MASK;
		lane->window = (struct record){ be64toh(record->address), be64toh(record->length),
						be32toh(record->key), 0 };
	} else if (immediate >> 30 == CREDIT && len == 0 && unsaid < link->sent - link->said) {
		link->said = link->sent - unsaid;
		at_least(&link->credited, link->said);
	} else {
		blame(link->neighbour, "it sent a credit or a window that cannot be");
	}
}

/* Takes completions; returns whether there were any. */
static bool take_completions(void)
{
	struct ibv_wc done[16];
	int count = ibv_poll_cq(cq, 16, done);
	if (count < 0)
		fail(OURS, "cannot poll the completion queue");
	for (int i = 0; i < count; i++) {
		struct lane *lane = &lanes[done[i].wr_id >> LANE_SHIFT];
		struct link *link = done[i].wr_id & TO_PREV ? &lane->prev : &lane->next;
		if (done[i].status != IBV_WC_SUCCESS && done[i].status < IBV_WC_WR_FLUSH_ERR)
			fail(OURS, "queue pair to rank %u: %s", link->neighbour,
			     ibv_wc_status_str(done[i].status)); /* the local errors */
		if (done[i].status != IBV_WC_SUCCESS)
			blame(link->neighbour, ibv_wc_status_str(done[i].status));
		if (!(done[i].wr_id & RECEIVE)) {
			link->unfinished--;
			continue;
		}
		arm(lane, link);
		uint32_t immediate = ntohl(done[i].imm_data);
		if (immediate >> 30 == DATA_SLOT || (immediate >> 30 == DATA_WINDOW && link == &lane->prev))
			note_data(link, immediate, done[i].byte_len);
		else
			note_control(lane, link, immediate, done[i].byte_len);
	}
	return count > 0;
}

/* Sleeps until something completes; news from the bootstrap server wake us too, and are always bad here. */
static void sleep_until_completion(void)
{
	struct ibv_cq *which;
	void *unused;
	while (!ibv_get_cq_event(channel, &which, &unused))
		ibv_ack_cq_events(which, 1);
	if (ibv_req_notify_cq(cq, 0))
		fail(OURS, "cannot arm the completion channel: %s", strerror(errno));
	if (take_completions())
		return; /* it came before the channel was armed */
	struct pollfd news[] = { { .fd = channel->fd, .events = POLLIN }, { .fd = server_fd, .events = POLLIN } };
	if (poll(news, 2, -1) > 0 && news[1].revents)
		hear(0);
}

/* ---- one operation ------------------------------------------------------------------------
 *
 * Step s of 2 (size - 1): send chunk (rank - s), receive chunk (rank - s - 1), modulo size. In the
 * first half what is received is reduced with our input; in the second half it is final and arrives
 * in our output by itself. Piece p of step s belongs to wave p + depth s: messages go by wave, and by
 * step within a wave, so that what was just reduced is sent on while it is warm.
 *
 * Short vectors travel whole instead, from both ends of the line of ranks to its middle, where the sum
 * is finished, and the result goes back outwards. A barrier is such a vector without bytes.
 */

enum collective { ALL_REDUCE = 0, BARRIER = 5 }; /* their codes in the protocol */

struct operation {
	const struct type *type;
	enum op op;
	uint64_t count;
	size_t element; /* bytes */
	bool is_small;
	struct buffer input, output, scratch; /* scratch: two vectors, if small */
	unsigned steps;
	uint64_t depth, waves; /* by how many waves a step is behind the one before; all of them */
	uint32_t tag; /* number and signature, as immediates carry them */
};

/* Where we are in the list of messages to send or to receive. */
struct cursor {
	unsigned shift; /* 0 for sends, 1 for receives */
	uint64_t wave;
	unsigned step;  /* in which we are, of this wave */
	uint32_t index; /* of the message: it travels on lane index mod lanes */
};

/* A message: which elements of which chunk (or of which rank's contribution). */
struct piece { unsigned chunk; uint64_t first, len; };

static uint32_t signature(enum collective collective, const struct type *type, enum op op, uint64_t count)
{
	uint8_t bytes[15] = { (uint8_t)collective, (uint8_t)(type - types), (uint8_t)op }; /* root 0 */
	uint32_t hash = 2166136261u; /* FNV-1a */
	for (int i = 0; i < 8; i++)
		bytes[7 + i] = (uint8_t)(count >> 8 * i);
	for (size_t i = 0; i < sizeof bytes; i++)
		hash = (hash ^ bytes[i]) * 16777619u;
	return (hash >> 16 ^ hash) & 0xffff;
}

static uint64_t piece_elements(const struct operation *it)
{
	uint64_t bytes = options.slot_bytes / (options.split ? options.lanes : 1);
	return it->element ? bytes / it->element : 1;
}

/* A step is behind the one before by enough that all slots are in use before a message waits for
 * another. */
static void lay_out_waves(struct operation *it)
{
	uint64_t most = piece_elements(it), steps = it->steps, all = options.lanes * options.slots;
	uint64_t pieces = ((it->count + ranks - 1) / ranks + most - 1) / most;
	it->depth = steps ? (all + steps - 1) / steps : pieces;
	if (it->depth > pieces)
		it->depth = pieces;
	it->waves = steps ? it->depth * (steps - 1) + pieces : 0;
}

/* The message at the cursor; false when there is none left. */
static bool piece_at(const struct operation *it, struct cursor *cursor, struct piece *piece)
{
	uint64_t size = (uint64_t)ranks, most = piece_elements(it);
	while (cursor->wave < it->waves) {
		if (cursor->step == it->steps || it->depth * cursor->step > cursor->wave) {
			cursor->wave++;
			cursor->step = 0;
			continue;
		}
		uint64_t done = (cursor->wave - it->depth * cursor->step) * most;
		uint64_t chunk = ((uint64_t)self + 2 * size - cursor->step - cursor->shift) % size;
		uint64_t rest = it->count % size; /* the first chunks are one longer */
		uint64_t start = chunk * (it->count / size) + (chunk < rest ? chunk : rest);
		uint64_t len = it->count / size + (chunk < rest);
		if (done < len) {
			uint64_t left = len - done;
			*piece = (struct piece){ (unsigned)chunk, start + done, left < most ? left : most };
			return true;
		}
		cursor->step++;
	}
	return false;
}

/* Goes on behind the message at the cursor. */
static void pass(struct cursor *cursor)
{
	cursor->step++;
	cursor->index++;
}

static bool gathers(const struct operation *it, const struct cursor *cursor)
{
	return cursor->step >= it->steps / 2;
}

static bool may_send(const struct link *link)
{
	return link->sent - link->credited < options.slots && link->unfinished < send_depth();
}

static void post_to_slot(struct lane *lane, struct link *link, const void *from, uint32_t len,
			 uint32_t local_key, uint32_t tag)
{
	uint64_t slot = link->far_slots + link->sent++ % options.slots * link->far_pitch;
	post(lane, link, from, len, local_key, slot, link->far_key, DATA_SLOT, tag);
}

/* The next message of a link, if it has arrived and is of this kind and length; where its slot is. */
static const uint8_t *next_data(const struct operation *it, struct link *link, enum kind kind, uint64_t len)
{
	uint64_t slot = link->consumed % options.slots;
	if (link->consumed == link->arrived)
		return NULL;
	if (link->arrivals[slot].immediate != ((uint32_t)kind << 30 | it->tag) ||
	    link->arrivals[slot].len != len)
		blame(link->neighbour, "it does another operation than we do");
	return link->slots + slot * link->pitch;
}

/* Sends the next message, if all that it needs is there. */
static bool send_one(struct operation *it, struct cursor *at, const struct cursor *received)
{
	struct piece piece;
	if (!piece_at(it, at, &piece))
		return false;
	/* What a step sends was received in the step before, as the same piece: depth waves ago. */
	uint64_t wave = at->wave - it->depth;
	bool is_there = at->step == 0 || received->wave > wave ||
			(received->wave == wave && received->step >= at->step);
	struct lane *lane = &lanes[at->index % options.lanes];
	bool to_window = gathers(it, at), has_window = lane->windows > lane->windows_used;
	if (!is_there || !may_send(&lane->next) || (to_window && !has_window))
		return false;
	uint64_t offset = piece.first * it->element, len = piece.len * it->element;
	if (to_window && (lane->window_tag != it->tag || lane->window.length < it->count * it->element))
		blame(next_rank, "its window is that of another operation");
	struct buffer from = at->step == 0 ? it->input : it->output;
	const uint8_t *start = from.at + offset;
	lane->uses_window |= to_window;
	if (to_window) {
		lane->next.sent++; /* it leaves its slot unused */
		post(lane, &lane->next, start, (uint32_t)len, from.mr->lkey, lane->window.address + offset,
		     lane->window.key, DATA_WINDOW, it->tag);
	} else {
		post_to_slot(lane, &lane->next, start, (uint32_t)len, from.mr->lkey, it->tag);
	}
	pass(at);
	return true;
}

/* Takes the next message, if it has arrived. */
static bool receive_one(struct operation *it, struct cursor *at)
{
	struct piece piece;
	if (!piece_at(it, at, &piece))
		return false;
	struct lane *lane = &lanes[at->index % options.lanes];
	enum kind kind = gathers(it, at) ? DATA_WINDOW : DATA_SLOT;
	uint64_t offset = piece.first * it->element;
	const uint8_t *data = next_data(it, &lane->prev, kind, piece.len * it->element);
	if (!data)
		return false;
	if (kind == DATA_SLOT) {
		it->type->reduce(it->op, data, it->input.at + offset, it->output.at + offset, piece.len);
		if (it->op == AVG && at->step == it->steps / 2 - 1)
			it->type->divide(it->output.at + offset, piece.len, ranks);
	}
	lane->prev.consumed++;
	give_credit(lane, &lane->prev);
	pass(at);
	return true;
}

/* Tells the previous rank where our output lies, on each lane on which something comes to it. */
static void announce(const struct operation *it)
{
	bool told[MAX_LANES] = { false };
	unsigned left = (unsigned)options.lanes;
	struct cursor at = { .shift = 1 };
	struct piece piece;
	for (; left && piece_at(it, &at, &piece); pass(&at)) {
		unsigned l = at.index % (unsigned)options.lanes;
		if (!gathers(it, &at) || told[l])
			continue;
		struct record *record = (struct record *)records.at + MAX_LANES + l;
		*record = (struct record){ htobe64((uintptr_t)it->output.at),
					   htobe64(it->count * it->element), htobe32(it->output.mr->rkey), 0 };
		post(&lanes[l], &lanes[l].prev, record, sizeof *record, records.mr->lkey,
		     lanes[l].prev_record, lanes[l].prev_record_key, WINDOW, it->tag);
		told[l] = true;
		left--;
	}
}

static bool is_unfinished(void)
{
	for (unsigned l = 0; l < options.lanes; l++)
		if (lanes[l].next.unfinished || lanes[l].prev.unfinished)
			return true;
	return false;
}

/* The small way. What is combined so far lies in the first vector of the scratch, the result in the
 * second. A rank first hears from the side that is farther from the middle, if there is one. */
struct line { bool is_left, is_middle, meets, has_outer; uint64_t pieces, sent, received; };

static struct line line_of(const struct operation *it)
{
	unsigned last = ranks - 1;
	struct line line = { .is_left = 2 * self < last, .is_middle = 2 * self == last,
			     .meets = 2 * self + 1 == last || 2 * self == last + 1,
			     .has_outer = 2 * self < last ? self > 0 : self < last };
	uint64_t most = piece_elements(it);
	line.pieces = it->element ? (it->count + most - 1) / most : 1;
	return line;
}

static uint64_t small_len(const struct operation *it, uint64_t piece)
{
	uint64_t left = it->count - piece * piece_elements(it), most = piece_elements(it);
	return left < most ? left : most;
}

static bool small_send(const struct operation *it, struct line *line)
{
	uint64_t turn = line->sent / line->pieces, piece = line->sent % line->pieces, before = 0;
	bool is_result = line->is_middle || turn == 1, to_next = line->is_left;
	if (turn == 2 || (turn == 1 && !line->is_middle && !line->has_outer))
		return false;
	if (line->is_middle)
		to_next = turn == 0;
	else if (turn == 1)
		to_next = !line->is_left;
	if (line->is_middle || line->has_outer)
		before = (is_result ? line->pieces : 0) + piece + 1;
	struct lane *lane = &lanes[piece % options.lanes];
	struct link *link = to_next ? &lane->next : &lane->prev;
	if (line->received < before || !may_send(link))
		return false;
	uint64_t at = piece * piece_elements(it) * it->element + (is_result ? options.small_limit : 0);
	post_to_slot(lane, link, it->scratch.at + at, (uint32_t)(small_len(it, piece) * it->element),
		     it->scratch.mr->lkey, it->tag);
	line->sent++;
	return true;
}

static bool small_receive(const struct operation *it, struct line *line)
{
	uint64_t turn = line->received / line->pieces, piece = line->received % line->pieces;
	bool both = line->is_middle || line->has_outer, is_last = turn == (uint64_t)both;
	if (turn > (uint64_t)both)
		return false;
	bool from_next = line->is_middle ? is_last : is_last == line->is_left;
	struct lane *lane = &lanes[piece % options.lanes];
	struct link *link = from_next ? &lane->next : &lane->prev;
	uint64_t len = small_len(it, piece), at = piece * piece_elements(it) * it->element;
	const uint8_t *data = next_data(it, link, DATA_SLOT, len * it->element);
	if (!data)
		return false;
	uint8_t *own = it->scratch.at + at, *into = is_last ? own + options.small_limit : own;
	if (is_last && !line->is_middle && !line->meets)
		memcpy(into, data, len * it->element);
	else if (it->element) /* in the order of the ranks */
		it->type->reduce(it->op, from_next ? own : data, from_next ? data : own, into, len);
	if (is_last && (line->is_middle || line->meets) && it->op == AVG)
		it->type->divide(into, len, ranks);
	link->consumed++;
	give_credit(lane, link);
	line->received++;
	return true;
}

#define SPIN_NS 50000 /* before sleeping: most waits are short */

/* Goes on as far as it can; returns whether it is at the end of the lists. */
static bool go_on(struct operation *it, struct cursor *sent, struct cursor *received, struct line *line,
		  bool *moved)
{
	struct piece piece;
	if (it->is_small) {
		while (small_send(it, line) || small_receive(it, line))
			*moved = true;
		return line->sent == line->pieces * (1u + (line->is_middle || line->has_outer)) &&
		       line->received == line->pieces * (1u + (line->is_middle || line->has_outer));
	}
	while (send_one(it, sent, received) || receive_one(it, received))
		*moved = true;
	return !piece_at(it, sent, &piece) && !piece_at(it, received, &piece);
}

/* Sends and receives all messages; afterwards no neighbour accesses our buffers. */
static void exchange(struct operation *it)
{
	struct cursor sent = { .shift = 0 }, received = { .shift = 1 };
	struct line line = line_of(it);
	uint64_t idle_since = 0;
	for (unsigned l = 0; l < options.lanes; l++)
		for (struct link *link = &lanes[l].next; link; link = link == &lanes[l].next ? &lanes[l].prev : NULL) {
			link->sent_before = link->sent;
			link->consumed_before = link->consumed;
		}
	for (bool moved = false; !go_on(it, &sent, &received, &line, &moved) || is_unfinished(); moved = false) {
		moved |= take_completions();
		for (unsigned l = 0; l < options.lanes; l++) /* what found its queue full before */
			moved |= give_credit(&lanes[l], &lanes[l].prev) | give_credit(&lanes[l], &lanes[l].next);
		if (moved)
			idle_since = 0;
		else if (!idle_since)
			idle_since = now_ns();
		else if (now_ns() - idle_since > SPIN_NS)
			sleep_until_completion();
	}
	/* All ranks had begun it, and so had consumed what was before; all of them know that. */
	for (unsigned l = 0; l < options.lanes; l++) {
		for (struct link *link = &lanes[l].next; link; link = link == &lanes[l].next ? &lanes[l].prev : NULL) {
			at_least(&link->credited, link->sent_before);
			at_least(&link->reported, link->consumed_before);
		}
		lanes[l].windows_used += lanes[l].uses_window;
		lanes[l].uses_window = false;
	}
}

static void run(struct operation *it, enum collective collective)
{
	static uint32_t operations;
	bool is_barrier = collective == BARRIER;
	size_t bytes = it->count * it->element;
	it->is_small = bytes <= options.small_limit && bytes <= options.slot_bytes;
	it->steps = 2 * (ranks - 1);
	it->tag = (operations++ & 0x3fff) << 16 | signature(collective, it->type, it->op, it->count);
	if (it->count == 0 && !is_barrier)
		return; /* no message; it counts all the same */
	if (!it->is_small) {
		lay_out_waves(it);
		announce(it);
		exchange(it);
		return;
	}
	memcpy(it->scratch.at, it->input.at, bytes);
	exchange(it);
	memcpy(it->output.at, it->scratch.at + options.small_limit, bytes);
}

/* ---- the measurement ------------------------------------------------------------------------ */

static uint64_t wrong_in_all;

static void lay_out(const struct operation *it)
{
	memset(it->output.at, 0, it->count * it->element); /* first: in place it is the input too */
	it->type->fill(it->op, self, 0, it->input.at, it->count);
}

static void meet(const struct operation *it)
{
	struct operation barrier = { .type = &types[1], .scratch = it->scratch,
				     .input = it->input, .output = it->output };
	run(&barrier, BARRIER);
}

/* One size in one placement: warm up, time, check, report. */
static void measure(struct operation it, const char *placement)
{
	uint64_t bytes = it.count * it.element, wrong = 0;
	lay_out(&it);
	for (uint64_t i = 0; i < options.warmup; i++)
		run(&it, ALL_REDUCE);
	meet(&it);
	uint64_t start = now_ns();
	for (uint64_t i = 0; i < options.iterations; i++)
		run(&it, ALL_REDUCE);
	uint64_t took = options.iterations ? (now_ns() - start) / options.iterations : 0;
	for (uint64_t i = 0; i < options.check; i++) {
		lay_out(&it);
		run(&it, ALL_REDUCE);
		wrong += count_wrong(it.type, it.op, it.output.at, it.count);
	}
	char verdict[48] = "";
	if (options.check)
		snprintf(verdict, sizeof verdict, " wrong=%" PRIu64, wrong);
	say("REPORT kind=time size=%" PRIu64 " placement=%s nanoseconds=%" PRIu64 "%s", bytes, placement, took,
	    verdict);
	printf("size=%" PRIu64 " count=%" PRIu64 " type=%s op=%s placement=%s us=%.1f%s\n", bytes, it.count,
	       options.type, options.op, placement, (double)took / 1000, verdict);
	wrong_in_all += wrong;
}

static void measure_all(void)
{
	struct operation it = { .type = types };
	while (strcmp(options.type, it.type->name))
		it.type++;
	while (strcmp(options.op, op_names[it.op]))
		it.op++;
	it.element = it.type->size;
	it.scratch = make_buffer(2 * options.small_limit, IBV_ACCESS_LOCAL_WRITE);
	struct buffer input = make_buffer(options.max, IBV_ACCESS_LOCAL_WRITE);
	struct buffer output = make_buffer(options.max, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	for (uint64_t bytes = options.min; bytes <= options.max;) {
		it.count = bytes / it.element;
		it.output = output;
		it.input = input;
		if (strcmp(options.placement, "in"))
			measure(it, "out");
		it.input = output;
		if (strcmp(options.placement, "out"))
			measure(it, "in");
		uint64_t following = options.step ? bytes + options.step : bytes * options.factor;
		if (following == bytes)
			break; /* twice nothing is nothing */
		bytes = following;
	}
	meet(&it);
}

/* ---- the command line ------------------------------------------------------------------------ */

static const char usage[] =
"usage: ring_allreduce --rank R --size N --root ADDRESS:PORT [OPTION VALUE]...\n"
"Joins a ring as one rank of 1 to N-1; rank 0 is `roce allreduce`. Under torchrun RANK, WORLD_SIZE,\n"
"MASTER_ADDR and MASTER_PORT stand for the first three. Sizes take K, M and G. The same on all ranks:\n"
"  --type float|double|half|bfloat16|int8|uint8|int32|uint32|int64|uint64    --op sum|prod|max|min|avg\n"
"  --min SIZE --max SIZE --factor N | --step SIZE    --placement both|out|in\n"
"  --iterations N --warmup N --check N\n"
"  --lanes N --slots N --slot-bytes SIZE --small-limit SIZE --split 0|1\n"
"This rank's own:\n"
"  --device NAME --port N --gid-index N --traffic-class N --timeout N --retry N --patience SECONDS\n"
"Status: 0 all right, 1 wrong results, 2 usage, 3 this rank cannot, 4 refused, 5 another rank failed.\n";

unsigned self, ranks;

struct options options = {
	.type = "float", .op = "sum", .placement = "both",
	.rank = UINT64_MAX, .port = 1, .gid_index = UINT64_MAX, .timeout = 14, .retry = 6, .patience = 60,
	.lanes = 1, .slots = 16, .slot_bytes = 128 << 10, .small_limit = UINT64_MAX,
	.min = 32 << 20, .max = 32 << 20, .factor = 2, .iterations = 20, .warmup = 1, .check = 1,
};

static const struct option_row {
	const char *name;
	const char **text;  /* an option that takes a word ... */
	uint64_t *number;   /* ... or a number */
	uint64_t least, most;
	const char *variable; /* of torchrun */
} rows[] = {
	{ "root", &options.root, NULL, 0, 0, NULL },
	{ "device", &options.device, NULL, 0, 0, NULL },
	{ "type", &options.type, NULL, 0, 0, NULL },
	{ "op", &options.op, NULL, 0, 0, NULL },
	{ "placement", &options.placement, NULL, 0, 0, NULL },
	{ "rank", NULL, &options.rank, 1, 65535, "RANK" },
	{ "size", NULL, &options.size, 2, 65536, "WORLD_SIZE" },
	{ "port", NULL, &options.port, 1, 255, NULL },
	{ "gid-index", NULL, &options.gid_index, 0, 255, NULL },
	{ "traffic-class", NULL, &options.traffic_class, 0, 255, NULL },
	{ "timeout", NULL, &options.timeout, 1, 31, NULL },
	{ "retry", NULL, &options.retry, 0, 7, NULL },
	{ "patience", NULL, &options.patience, 1, 86400, NULL },
	{ "lanes", NULL, &options.lanes, 1, MAX_LANES, NULL },
	{ "slots", NULL, &options.slots, 1, 1024, NULL },
	{ "slot-bytes", NULL, &options.slot_bytes, 8, 16 << 20, NULL },
	{ "small-limit", NULL, &options.small_limit, 0, 1 << 30, NULL },
	{ "split", NULL, &options.split, 0, 1, NULL },
	{ "min", NULL, &options.min, 0, 1ull << 40, NULL },
	{ "max", NULL, &options.max, 0, 1ull << 40, NULL },
	{ "factor", NULL, &options.factor, 2, 1 << 20, NULL },
	{ "step", NULL, &options.step, 1, 1ull << 40, NULL },
	{ "iterations", NULL, &options.iterations, 0, 1ull << 40, NULL },
	{ "warmup", NULL, &options.warmup, 0, 1ull << 40, NULL },
	{ "check", NULL, &options.check, 0, 1ull << 40, NULL },
};

static void set(const struct option_row *row, const char *text)
{
	if (row->text) {
		*row->text = text;
		return;
	}
	static const char units[] = "KMG";
	char *end = NULL;
	errno = 0;
	uint64_t value = isdigit((unsigned char)*text) ? strtoull(text, &end, 0) : 0;
	const char *unit = end && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	unsigned shift = unit ? (unsigned)(unit - units + 1) * 10 : 0;
	if (!end || errno || end[!!unit] || value > row->most >> shift || value << shift < row->least)
		fail(USAGE, "--%s %s: should be %" PRIu64 " to %" PRIu64 "%s", row->name, text, row->least,
		     row->most, row->number == &options.rank ? " (rank 0 is `roce allreduce`)" : "");
	*row->number = value << shift;
}

static void read_options(int argc, char **argv)
{
	size_t known = sizeof rows / sizeof *rows;
	for (size_t i = 0; i < known; i++)
		if (rows[i].variable && getenv(rows[i].variable))
			set(&rows[i], getenv(rows[i].variable));
	static char root[300];
	const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
	if (address && port) {
		snprintf(root, sizeof root, strchr(address, ':') ? "[%s]:%s" : "%s:%s", address, port);
		options.root = root;
	}
	for (int i = 1; i < argc; i += 2) {
		size_t row = 0;
		while (row < known && (strncmp(argv[i], "--", 2) || strcmp(argv[i] + 2, rows[row].name)))
			row++;
		if (row == known || i + 1 == argc) {
			fputs(usage, strcmp(argv[i], "--help") ? stderr : stdout);
			exit(strcmp(argv[i], "--help") ? USAGE : 0);
		}
		set(&rows[row], argv[i + 1]);
	}
	self = (unsigned)options.rank;
	ranks = (unsigned)options.size;
	if (options.small_limit == UINT64_MAX)
		options.small_limit = ranks <= 4 ? 64 << 10 : 32 << 10;
	if (!options.root || options.rank >= options.size) {
		fputs(usage, stderr);
		exit(USAGE);
	}
	size_t type = 0, op = 0;
	while (type < TYPES && strcmp(options.type, types[type].name))
		type++;
	while (op < OPS && strcmp(options.op, op_names[op]))
		op++;
	if (type == TYPES || op == OPS)
		fail(USAGE, "no type %s or no operator %s; --help lists them", options.type, options.op);
	if (strcmp(options.placement, "both") && strcmp(options.placement, "out") && strcmp(options.placement, "in"))
		fail(USAGE, "--placement %s: should be both, out or in", options.placement);
	if (options.slot_bytes % 8 || options.slot_bytes < 8 * options.lanes || options.min > options.max)
		fail(USAGE, "--slot-bytes is a multiple of 8 and at least 8 a lane, --max at least --min");
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	read_options(argc, argv);
	join();
	measure_all();
	say("BYE");
	expect("BYE");
	return wrong_in_all ? WRONG_RESULT : 0;
}
