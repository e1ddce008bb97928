/* Posted work. Its completions are printed by settle.c. */
#define _GNU_SOURCE
#include "sequences.h"

#include <pthread.h>
#include <string.h>

#define CHAIN 3
#define PIECES 40

/* A work request's number: place of the queue pair, direction, whether it is signaled, serial number. */
static uint64_t number_of(int place, char direction, int is_signaled, uint32_t serial)
{
	return (uint64_t)place << 40 | (uint64_t)(direction == 's' ? 0 : direction == 'r' ? 1 : 2) << 32 |
	       (uint64_t)is_signaled << 31 | serial;
}

static uint32_t some_length(void)
{
	return ONE_OF(0, 1, 7, 8, 8, 64, 65, 100, 1023, 1024, 1025, 4096, 20000);
}

/* A number of pieces: as few as every queue pair takes, or one more than this one takes. */
static uint32_t some_pieces(uint32_t granted)
{
	if (chance(82))
		return 1;
	uint32_t number = ONE_OF(0, 2, 2, 99);
	if (number != 99 || granted + 1 > PIECES)
		return number % 99;
	arg("pieces=granted+1");
	return granted + 1;
}

/* A piece of registered memory from an offset on, or, rarely, of memory that the key does not cover. Prints it. */
static struct ibv_sge some_piece(uint32_t length, uint32_t offset, int may_be_wrong)
{
	int place = some_region();
	struct ibv_sge piece = { .length = length };
	if (place < 0) {
		arg("piece=none:%u", length);
		piece.addr = (uintptr_t)t.regions[0].memory;
		return piece;
	}
	uint32_t wrong = may_be_wrong ? pick(20) : 99;
	piece.addr = (uintptr_t)t.regions[place].memory + offset;
	piece.lkey = t.regions[place].mr->lkey;
	if (wrong == 0) {
		piece.lkey = 0;
	} else if (wrong == 1) {
		piece.lkey ^= 0x55;
	} else if (wrong == 2) {
		piece.addr += BUFFER;
	} else {
		wrong = 9;
	}
	arg("piece=%s+%u:%u%s", index_name('m', place), offset, length,
	    (const char *[]){ "!zero", "!key", "!range" }[wrong > 2 ? 0 : wrong] + (wrong > 2 ? 5 : 0));
	return piece;
}

static uint32_t sent_at(void)
{
	return pick(24) * 512;
}

static uint32_t received_at(void)
{
	return RECEIVED_AT + pick(8) * 512;
}

static uint32_t result_at(void)
{
	return RESULTS_AT + pick(8) * 512;
}

/* Whether the device may write all of a piece. */
static int is_writable(const struct ibv_sge *piece)
{
	for (int i = 0; i < REGIONS; i++) {
		const struct ibv_mr *mr = t.regions[i].mr;
		if (mr && mr->lkey == piece->lkey)
			return t.regions[i].access & IBV_ACCESS_LOCAL_WRITE && piece->addr >= (uintptr_t)mr->addr &&
			       piece->addr + piece->length <= (uintptr_t)mr->addr + mr->length;
	}
	return 0;
}

/* Whether all of a piece is registered, and so can be sent. */
static int is_readable(const struct ibv_sge *piece)
{
	for (int i = 0; i < REGIONS; i++) {
		const struct ibv_mr *mr = t.regions[i].mr;
		if (mr && mr->lkey == piece->lkey)
			return piece->addr >= (uintptr_t)mr->addr && piece->addr + piece->length <= (uintptr_t)mr->addr + mr->length;
	}
	return 0;
}

/* Whether the peer expects another sequence number: it was brought up for another one, or hears a second sender. */
static int is_uneven(int place)
{
	const struct pair *pair = &t.pairs[place];
	if (pair->peer < 0 || t.pairs[pair->peer].session != pair->session)
		return 1;
	for (int i = 0; i < PAIRS; i++)
		if (i != place && t.pairs[i].qp && t.pairs[i].peer == pair->peer)
			return 1;
	return 0;
}

/* Which queue pair requests are posted to. */
static void arg_pair(int place)
{
	const struct pair *pair = &t.pairs[place];
	arg("qp=%s type=%u state=%u%s%s", index_name('q', place), pair->type, pair->state, pair->peer == place ? " self" : "",
	    pair->is_failed ? " failed" : "");
	if (pair->type == IBV_QPT_UC && pair->peer >= 0 && t.pairs[pair->peer].is_failed)
		arg("to-failed");
	if (pair->type == IBV_QPT_UC && is_uneven(place)) {
		arg("uneven");
		if (pair->peer >= 0)
			t.pairs[pair->peer].hears_another = 1;
	}
	if (pair->type == IBV_QPT_UC && pair->peer >= 0 && t.pairs[pair->peer].hears_long)
		arg("behind-long");
}

struct posting {
	struct ibv_send_wr requests[CHAIN];
	struct ibv_sge pieces[CHAIN][PIECES];
	int count, place;
};

/* Memory of the peer for so many bytes, and, rarely, without the right that they need. Prints it. */
static void fill_remote(uint64_t *address, uint32_t *key, int may_be_wrong, uint32_t length, uint32_t right)
{
	int place = some_region();
	uint32_t offset = may_be_wrong && chance(10) ? ONE_OF(REACHED_AT + 1, BUFFER - 1, BUFFER) : REACHED_AT + pick(9) * 512;
	uint32_t wrong = may_be_wrong && offset < RESULTS_AT ? pick(14) : 99;
	if (place < 0) {
		arg("remote=none");
		*address = 0;
		*key = 0;
		return;
	}
	*address = (uintptr_t)t.regions[place].memory + offset;
	*key = t.regions[place].mr->rkey;
	if (wrong == 0)
		*key ^= 0x55;
	else if (wrong == 1 && some_window() >= 0)
		*key = t.windows[some_window()]->rkey;
	else
		wrong = 9;
	arg("remote=%s+%u%s", index_name('m', place), offset, wrong == 0 ? "!key" : wrong == 1 ? "!window" : "");
	const struct ibv_mr *mr = t.regions[place].mr;
	uint64_t start = (uintptr_t)mr->addr;
	if (wrong == 0 || !(t.regions[place].access & right) || *address < start || *address + length > start + mr->length)
		arg("no-right");
}

/*
 * Whether a queue pair of the type executes the operation, of rxe as of ours: the table of ibv_post_send(3), less
 * the keys that an unreliable connection would invalidate.
 */
static int is_fit(enum ibv_qp_type type, uint32_t opcode)
{
	const uint32_t datagrams = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM;
	const uint32_t unreliable = datagrams | 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM | 1u << IBV_WR_BIND_MW;
	const uint32_t reliable = unreliable | 1u << IBV_WR_LOCAL_INV | 1u << IBV_WR_SEND_WITH_INV | 1u << IBV_WR_RDMA_READ |
				  1u << IBV_WR_ATOMIC_CMP_AND_SWP | 1u << IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint32_t fits = type == IBV_QPT_UD ? datagrams | 1u << IBV_WR_TSO : type == IBV_QPT_UC ? unreliable : reliable;
	return opcode < 32 && fits >> opcode & 1;
}

/* Whether a WRITE without a fence changes what a READ before it may not have read yet. */
static int is_over_read(const struct posting *posting, int index, uint32_t length)
{
	const struct ibv_send_wr *it = &posting->requests[index];
	if (it->opcode > IBV_WR_RDMA_WRITE_WITH_IMM || it->send_flags & IBV_SEND_FENCE)
		return 0;
	for (int i = 0; i < index; i++) {
		const struct ibv_send_wr *read = &posting->requests[i];
		uint32_t read_length = 0;
		for (int n = 0; n < read->num_sge; n++)
			read_length += read->sg_list[n].length;
		if (read->opcode == IBV_WR_RDMA_READ && it->wr.rdma.remote_addr < read->wr.rdma.remote_addr + read_length &&
		    read->wr.rdma.remote_addr < it->wr.rdma.remote_addr + length)
			return 1;
	}
	return 0;
}

static void fill_send(struct posting *posting, int index)
{
	struct pair *pair = &t.pairs[posting->place];
	struct ibv_send_wr *wr = &posting->requests[index];
	static const uint32_t usual[] = { IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
					  IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
					  IBV_WR_ATOMIC_FETCH_AND_ADD };
	static const uint32_t rare[] = { IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_SEND_WITH_INV, IBV_WR_TSO,
					 IBV_WR_DRIVER1, 99 };
	/* Few operations that the service has not: rxe takes them, after which nothing can be compared. */
	uint32_t kinds = chance(2) ? 8 : pair->type == IBV_QPT_UD ? 3 : pair->type == IBV_QPT_UC ? 5 : 8;
	uint32_t opcode = chance(pair->type == IBV_QPT_RC ? 88 : 97) ? usual[pick(kinds)] : rare[pick(chance(10) ? 6 : 3)];
	int may_be_wrong = chance(50); /* the local side, else the remote one: of two faults either may be seen first */
	int is_atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	int has_result = is_atomic || opcode == IBV_WR_RDMA_READ;
	uint32_t flags = (chance(75) ? IBV_SEND_SIGNALED : 0) | (chance(15) ? IBV_SEND_FENCE : 0) |
			 (chance(20) ? IBV_SEND_SOLICITED : 0) | (chance(15) ? IBV_SEND_INLINE : 0) |
			 (chance(2) ? 1u << pick(32) : 0);
	uint32_t length = is_atomic && chance(97) ? 8 : some_length(), pieces;
	int is_signaled = pair->signals_all || flags & IBV_SEND_SIGNALED;
	memset(wr, 0, sizeof *wr);
	arg("[op=%u flags=%#x", opcode, flags);
	pieces = some_pieces(pair->send_pieces);
	wr->wr_id = number_of(posting->place, 's', is_signaled, ++pair->serial);
	wr->opcode = opcode;
	wr->send_flags = flags;
	wr->sg_list = posting->pieces[index];
	wr->num_sge = (int)pieces;
	struct ibv_sge first = some_piece(pieces == 1 ? length : length / 2, has_result ? result_at() : sent_at(), may_be_wrong);
	for (uint32_t i = 0; i < pieces; i++)
		posting->pieces[index][i] = first;
	wr->imm_data = htobe32(0x1234);
	if (pieces > pair->asked_pieces)
		arg("pieces>asked");
	if (flags & IBV_SEND_INLINE && (uint64_t)first.length * pieces > pair->asked_inline)
		arg("inline>asked");
	if (pair->type == IBV_QPT_UC && pair->peer >= 0) {
		struct pair *peer = &t.pairs[pair->peer];
		if (index > 0 && peer->hears_long)
			arg("behind-long");
		peer->hears_long |= first.length * pieces > 1024; /* the path MTU */
	}
	if (!is_fit(pair->type, opcode))
		arg("unfit");
	if (is_atomic && first.length * pieces != 8)
		arg("not-8");
	if (flags & IBV_SEND_IP_CSUM)
		arg("checksum");
	if (has_result && flags & IBV_SEND_INLINE)
		arg("inline-result");
	if (has_result && flags & IBV_SEND_FENCE)
		arg("fenced-result");
	for (int i = 0; i < index; i++)
		if (has_result && posting->requests[i].send_flags & IBV_SEND_FENCE)
			arg("behind-fence");
	if (!has_result && first.length && !is_readable(&first))
		arg("no-source");
	if (has_result && !is_writable(&first)) {
		arg("no-place");
		if (pair->peer >= 0)
			t.pairs[pair->peer].is_asked_in_vain = 1; /* by rxe, and not by ours */
	}
	if (pair->type == IBV_QPT_UD) {
		int handle = some_handle(), peer = chance(70) && pair->peer >= 0 && t.pairs[pair->peer].qp ? pair->peer : some_pair();
		uint32_t qkey = chance(85) ? QKEY : ONE_OF(0, 1, 0x80000000, UINT32_MAX);
		wr->wr.ud.ah = handle < 0 ? NULL : t.handles[handle];
		wr->wr.ud.remote_qpn = chance(90) ? t.pairs[peer].qp->qp_num : ONE_OF(0, 1, 0xffffff, 0xfffffe);
		wr->wr.ud.remote_qkey = qkey;
		arg("ah=%s to=%s qkey=%#x", index_name('a', handle), named('Q', wr->wr.ud.remote_qpn), qkey);
		if (handle >= 0 && t.handles[handle]->pd != pair->qp->pd)
			arg("other-domain");
		if (wr->wr.ud.remote_qpn == pair->qp->qp_num)
			arg("to-self");
		if (wr->wr.ud.remote_qpn == t.pairs[peer].qp->qp_num && t.pairs[peer].is_failed)
			arg("to-failed");
		if (first.length * pieces > 4096) /* the MTU of the port */
			arg("oversized");
		if (handle < 0) { /* the library would read through it */
			wr->num_sge = 100;
			arg("no-handle");
		}
	} else if (is_atomic) {
		fill_remote(&wr->wr.atomic.remote_addr, &wr->wr.atomic.rkey, !may_be_wrong, 8, IBV_ACCESS_REMOTE_ATOMIC);
		if (wr->wr.atomic.remote_addr % 8)
			arg("unaligned");
		wr->wr.atomic.compare_add = ONE_OF(0, 1, UINT32_MAX);
		wr->wr.atomic.swap = 7;
		arg("add=%#llx", (unsigned long long)wr->wr.atomic.compare_add);
	} else if (opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_SEND_WITH_INV) {
		int window = some_window();
		/* Seldom a window: rxe of Linux 6.1 dereferences NULL where it is not bound (rxe_invalidate_mw). */
		wr->invalidate_rkey = window < 0 || !chance(opcode == IBV_WR_LOCAL_INV ? 2 : 50) ? 0x1234567 : t.windows[window]->rkey;
		arg("invalidate=%s", wr->invalidate_rkey == 0x1234567 ? "wrong" : index_name('w', window));
	} else if (opcode == IBV_WR_BIND_MW) {
		int window = some_window(), region = some_region();
		if (window < 0 || region < 0) {
			wr->opcode = IBV_WR_SEND;
			arg("no-window");
		} else {
			uint32_t access = ONE_OF(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 0, IBV_ACCESS_REMOTE_READ,
						 IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE);
			uint32_t bound = ONE_OF(4096, 4096, BUFFER, BUFFER + 1, 0);
			wr->num_sge = 0; /* rxe's library refuses pieces and immediate data here */
			wr->imm_data = 0;
			wr->bind_mw.mw = t.windows[window];
			wr->bind_mw.rkey = chance(90) ? ibv_inc_rkey(t.windows[window]->rkey) : 0x7654321;
			wr->bind_mw.bind_info = (struct ibv_mw_bind_info){ t.regions[region].mr,
									   (uintptr_t)t.regions[region].memory, bound, access };
			arg("bind=%s:%s length=%u access=%#x rkey=%s", index_name('w', window), index_name('m', region),
			    bound, access, wr->bind_mw.rkey == 0x7654321 ? "wrong" : "next");
		}
	} else {
		fill_remote(&wr->wr.rdma.remote_addr, &wr->wr.rdma.rkey, !may_be_wrong, first.length * pieces,
			    opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
		if (is_over_read(posting, index, first.length * pieces))
			arg("over-read");
	}
	arg("]");
}

static void note_posted(struct posting *posting, const struct ibv_send_wr *bad)
{
	struct pair *pair = &t.pairs[posting->place];
	for (int i = 0; i < posting->count && &posting->requests[i] != bad; i++) {
		if (pair->signals_all || posting->requests[i].send_flags & IBV_SEND_SIGNALED)
			pair->waiting++;
		else
			pair->unsignaled = 1;
	}
}

static void draw(struct posting *posting, int place, int count)
{
	posting->place = place;
	posting->count = count;
	for (int i = 0; i < count; i++) {
		fill_send(posting, i);
		if (i > 0)
			posting->requests[i - 1].next = &posting->requests[i];
	}
}

static void post_send(void)
{
	struct posting posting;
	int place = some_pair(), count = chance(70) ? 1 : 1 + (int)pick(CHAIN);
	call("ibv_post_send");
	if (place < 0 || some_region() < 0) {
		end_call();
		return;
	}
	arg_pair(place);
	draw(&posting, place, count);
	struct ibv_send_wr *bad = NULL;
	int code = ibv_post_send(t.pairs[place].qp, posting.requests, &bad);
	result_code(code);
	if (code)
		out("bad=%td", bad ? bad - posting.requests : -1);
	note_posted(&posting, code ? bad : NULL);
	end_call();
	settle();
}

static void post_recv(void)
{
	struct ibv_recv_wr requests[CHAIN], *bad = NULL;
	struct ibv_sge pieces[CHAIN][PIECES];
	int place = some_pair(), count = 1 + (int)pick(CHAIN);
	call("ibv_post_recv");
	if (place < 0) {
		end_call();
		return;
	}
	struct pair *pair = &t.pairs[place];
	arg("qp=%s type=%u state=%u srq=%s", index_name('q', place), pair->type, pair->state, index_name('s', pair->srq));
	for (int i = 0; i < count; i++) {
		uint32_t number = some_pieces(pair->receive_pieces);
		requests[i] = (struct ibv_recv_wr){ number_of(place, 'r', 1, ++pair->serial), i + 1 < count ? &requests[i + 1] : NULL,
						    pieces[i], (int)number };
		struct ibv_sge first = some_piece(ONE_OF(4096, 4096, 4096, 1024, 100, 40, 8, 0), received_at(), 1);
		pair->receives[pair->serial % 64] = first.addr;
		for (uint32_t n = 0; n < number; n++)
			pieces[i][n] = first;
	}
	int code = ibv_post_recv(pair->qp, requests, &bad);
	result_code(code);
	if (code)
		out("bad=%td", bad ? bad - requests : -1);
	end_call();
	if (pair->state == IBV_QPS_ERR || pair->state == IBV_QPS_SQE || pair->is_failed)
		settle();
}

static void post_srq_recv(void)
{
	int place = some_srq(), count = 1 + (int)pick(CHAIN);
	struct ibv_recv_wr requests[CHAIN], *bad = NULL;
	struct ibv_sge pieces[CHAIN][PIECES];
	call("ibv_post_srq_recv");
	if (place < 0) {
		end_call();
		return;
	}
	arg("srq=%s", index_name('s', place));
	for (int i = 0; i < count; i++) {
		uint32_t number = chance(85) ? 1 : ONE_OF(0, 2);
		requests[i] = (struct ibv_recv_wr){ number_of(place, 'q', 1, ++t.srq_serial), i + 1 < count ? &requests[i + 1] : NULL,
						    pieces[i], (int)number };
		for (uint32_t n = 0; n < number; n++)
			pieces[i][n] = some_piece(ONE_OF(4096, 4096, 100), received_at(), 1);
		t.srq_receives[t.srq_serial % 64] = number ? pieces[i][0].addr : 0;
	}
	int code = ibv_post_srq_recv(t.srqs[place], requests, &bad);
	result_code(code);
	if (code)
		out("bad=%td", bad ? bad - requests : -1);
	end_call();
}

/* A SEND with a receive for it: what most programs do. */
static void exchange(void)
{
	struct posting posting;
	int place = some_pair();
	call("ibv_post_send");
	if (place < 0 || some_region() < 0 || t.pairs[place].peer < 0 || !t.pairs[t.pairs[place].peer].qp) {
		arg("to nothing");
		end_call();
		return;
	}
	struct pair *pair = &t.pairs[place], *peer = &t.pairs[pair->peer];
	arg_pair(place);
	arg("with a receive");
	struct ibv_sge piece = some_piece(4096, received_at(), 0);
	peer->receives[(peer->serial + 1) % 64] = piece.addr;
	struct ibv_recv_wr receive = { number_of(pair->peer, 'r', 1, ++peer->serial), NULL, &piece, 1 }, *bad_receive = NULL;
	int received = ibv_post_recv(peer->qp, &receive, &bad_receive);
	draw(&posting, place, 1);
	struct ibv_send_wr *bad = NULL;
	int code = ibv_post_send(pair->qp, posting.requests, &bad);
	result_code(code);
	out("receive=%s", errno_name(received));
	note_posted(&posting, code ? bad : NULL);
	end_call();
	settle();
}

struct poster {
	struct posting posting;
	int code;
	struct ibv_send_wr *bad;
};

static void *post_in_thread(void *given)
{
	struct poster *poster = given;
	poster->code = ibv_post_send(t.pairs[poster->posting.place].qp, poster->posting.requests, &poster->bad);
	return NULL;
}

/*
 * A WRITE that fails in no way, to a place of its own: of two requests at a time each other kind shows which was
 * the first. Prints it; returns 0 if there is none.
 */
static int draw_write(struct posting *posting, int place, int index)
{
	struct ibv_sge *piece = &posting->pieces[0][0];
	posting->place = place;
	posting->count = 1;
	arg_pair(place);
	*piece = some_piece(ONE_OF(1, 8, 1024, 4096), sent_at(), 0);
	int target = some_region();
	const struct ibv_mr *mr = t.regions[target].mr;
	uint32_t offset = REACHED_AT + (uint32_t)index * 8192;
	arg("remote=m%d+%u", target, offset);
	posting->requests[0] = (struct ibv_send_wr){ .wr_id = number_of(place, 's', 1, ++t.pairs[place].serial),
						     .sg_list = piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
						     .send_flags = IBV_SEND_SIGNALED };
	posting->requests[0].wr.rdma.remote_addr = (uintptr_t)t.regions[target].memory + offset;
	posting->requests[0].wr.rdma.rkey = mr->rkey;
	return is_readable(piece) && t.regions[target].access & IBV_ACCESS_REMOTE_WRITE && mr->length == BUFFER;
}

/* Two threads post to two queue pairs at a time: each has its own results whatever the order is. */
static void post_in_two_threads(void)
{
	struct poster posters[2];
	pthread_t threads[2];
	int a = some_pair(), b = some_pair();
	call("ibv_post_send");
	if (a < 0 || a == b || some_region() < 0 || t.pairs[a].type == IBV_QPT_UD || t.pairs[b].type == IBV_QPT_UD) {
		arg("no two queue pairs");
		end_call();
		return;
	}
	int places[2] = { a, b }, are_right = 1;
	for (int i = 0; i < 2; i++) {
		arg("thread=%d", i);
		are_right &= draw_write(&posters[i].posting, places[i], i);
	}
	if (!are_right) {
		arg("not right");
		end_call();
		return;
	}
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, post_in_thread, &posters[i]);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		note_posted(&posters[i].posting, posters[i].code ? posters[i].bad : NULL);
	}
	result_code(posters[0].code);
	out("other=%s", errno_name(posters[1].code));
	end_call();
	settle();
}

void post_flushed(int place)
{
	struct pair *pair = &t.pairs[place];
	struct posting posting = { .place = place, .count = 1 };
	struct ibv_sge piece = { .addr = (uintptr_t)t.regions[0].memory, .length = 8 };
	struct ibv_recv_wr receive = { number_of(place, 'r', 1, ++pair->serial), NULL, &piece, 1 }, *bad_receive = NULL;
	call("ibv_post_recv");
	arg("qp=%s type=%u state=%u srq=%s", index_name('q', place), pair->type, pair->state, index_name('s', pair->srq));
	result_code(ibv_post_recv(pair->qp, &receive, &bad_receive));
	end_call();
	settle();
	struct ibv_send_wr *bad = NULL;
	posting.requests[0] = (struct ibv_send_wr){ .wr_id = number_of(place, 's', 1, ++pair->serial), .sg_list = &piece,
						    .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	if (pair->type == IBV_QPT_UD) {
		int handle = some_handle();
		if (handle < 0 || t.handles[handle]->pd != pair->qp->pd)
			return;
		posting.requests[0].wr.ud.ah = t.handles[handle];
		posting.requests[0].wr.ud.remote_qpn = pair->qp->qp_num;
		posting.requests[0].wr.ud.remote_qkey = QKEY;
	}
	call("ibv_post_send");
	arg_pair(place);
	arg("[op=%u]", IBV_WR_SEND);
	int code = ibv_post_send(pair->qp, posting.requests, &bad);
	result_code(code);
	note_posted(&posting, code ? bad : NULL);
	end_call();
	settle();
}

static void bind_window(void)
{
	int place = some_pair(), window = some_window(), region = some_region();
	uint32_t length = ONE_OF(4096, BUFFER, BUFFER + 1, 0);
	uint32_t access = ONE_OF(IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, 0, IBV_ACCESS_ZERO_BASED);
	call("ibv_bind_mw");
	arg("qp=%s mw=%s mr=%s length=%u access=%#x", index_name('q', place), index_name('w', window), index_name('m', region),
	    length, access);
	if (place >= 0 && window >= 0 && region >= 0) {
		struct pair *pair = &t.pairs[place];
		arg("type=%u state=%u", pair->type, pair->state);
		struct ibv_mw_bind bind = { number_of(place, 's', 1, ++pair->serial), IBV_SEND_SIGNALED,
					    { t.regions[region].mr, (uintptr_t)t.regions[region].memory, length, access } };
		int code = ibv_bind_mw(pair->qp, t.windows[window], &bind);
		result_code(code);
		if (!code) {
			pair->waiting++;
			out("rkey=%s", named('W', t.windows[window]->rkey));
		}
	}
	end_call();
	settle();
}

const struct step work_steps[] = {
	{ post_send, 22 },
	{ post_recv, 16 },
	{ exchange, 14 },
	{ post_srq_recv, 4 },
	{ bind_window, 3 },
	{ post_in_two_threads, 1 },
	{ 0 },
};
