/*
 * Connections between two processes, each with identifiers of its own and possibly on another device. Both draw
 * the same numbers until one of them acts; a turn is one call at one of them, and "peer" at the other.
 */
#define _GNU_SOURCE
#include "sequences.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PORTS 4
#define WAIT_MS 3000

static uint64_t sequence_seed;
static uint32_t turns;

/* Begins a turn; returns whether it is this end's. */
static int turn_of(int is_mine)
{
	random_start(sequence_seed, 0x10000 + ++turns);
	if (!is_mine) {
		call("peer");
		end_call();
	}
	return is_mine;
}

static struct sockaddr *peer_port(uint32_t port)
{
	static struct sockaddr_in result;
	result = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = t.peer_address };
	result.sin_port = htons((uint16_t)(t.peer_port + port));
	return (struct sockaddr *)&result;
}

/* --- the parts of a connection --- */

static int create(uint32_t space)
{
	int place = free_id();
	arg("place=%s with rdma_create_id space=%#x", index_name('i', place), space);
	if (place < 0)
		return -1;
	t.ids[place] = (struct identifier){ 0 };
	if (rdma_create_id(t.cm, &t.ids[place].id, &t.ids[place], (enum rdma_port_space)space)) {
		result_code(-1);
		return -1;
	}
	return place;
}

static int listen_at(uint32_t space, uint32_t port)
{
	call("rdma_listen");
	int place = create(space);
	if (place >= 0) {
		int code = rdma_bind_addr(t.ids[place].id, address(pick(2), t.first_port + port));
		result_code(code ? code : rdma_listen(t.ids[place].id, 4));
	}
	end_call();
	return place;
}

static int resolve(uint32_t space, uint32_t port)
{
	call("rdma_resolve_addr");
	int place = create(space);
	if (place >= 0)
		result_code(rdma_resolve_addr(t.ids[place].id, NULL, peer_port(port), 2000));
	t.pending_ms = place >= 0;
	end_call();
	return place;
}

static void find_route(int place)
{
	call("rdma_resolve_route");
	arg("id=%s", index_name('i', place));
	if (place >= 0 && t.ids[place].id->verbs)
		result_code(rdma_resolve_route(t.ids[place].id, 2000));
	t.pending_ms = place >= 0;
	end_call();
}

static void give_qp(int place)
{
	call("rdma_create_qp");
	arg("id=%s", index_name('i', place));
	if (place >= 0 && !t.ids[place].has_qp && t.ids[place].id->verbs)
		make_qp(place);
	end_call();
}

static void request(int place)
{
	call("rdma_connect");
	arg("id=%s", index_name('i', place));
	struct rdma_conn_param it = parameters();
	if (place >= 0 && t.ids[place].id->verbs) {
		int code = rdma_connect(t.ids[place].id, &it);
		result_code(code);
		t.ids[place].is_waiting |= !code;
	}
	t.pending_ms = place >= 0;
	end_call();
}

static void answer(int place, int accepts)
{
	call(accepts ? "rdma_accept" : "rdma_reject");
	arg("id=%s", index_name('i', place));
	struct rdma_conn_param it = parameters();
	if (place >= 0) {
		int code = accepts ? rdma_accept(t.ids[place].id, &it)
				   : rdma_reject(t.ids[place].id, it.private_data, it.private_data_len);
		result_code(code);
		t.ids[place].is_waiting |= accepts && !code;
	}
	t.pending_ms = place >= 0;
	end_call();
}

static void finish_establishing(int place)
{
	call("rdma_establish");
	arg("id=%s", index_name('i', place));
	if (place >= 0 && !is_slow_to_end(place))
		result_code(rdma_establish(t.ids[place].id));
	t.pending_ms = place >= 0;
	end_call();
}

static void leave(int place, int destroys)
{
	call(destroys ? "rdma_destroy_id" : "rdma_disconnect");
	arg("id=%s", index_name('i', place));
	if (place >= 0 && !destroys)
		result_code(rdma_disconnect(t.ids[place].id));
	if (place >= 0 && destroys) {
		if (t.ids[place].has_qp)
			rdma_destroy_qp(t.ids[place].id);
		result_code(rdma_destroy_id(t.ids[place].id));
		t.ids[place].id = NULL;
	}
	t.pending_ms = place >= 0;
	end_call();
}

/* --- data --- */

/* The state of an identifier's queue pair, and its peer's number. */
static enum ibv_qp_state state_of(int place, uint32_t *peer_number)
{
	struct ibv_qp_attr attributes;
	struct ibv_qp_init_attr init;
	if (ibv_query_qp(t.ids[place].id->qp, &attributes, IBV_QP_STATE | IBV_QP_DEST_QPN, &init))
		return IBV_QPS_UNKNOWN;
	*peer_number = attributes.dest_qp_num;
	return attributes.qp_state;
}

/* An identifier whose queue pair can send to that of the other end; -1 without. */
static int ready_to_send(void)
{
	int from = (int)pick(IDS);
	for (int n = 0; n < IDS; n++) {
		int place = (from + n) % IDS;
		uint32_t number;
		struct identifier *it = &t.ids[place];
		if (it->id && it->has_qp && state_of(place, &number) == IBV_QPS_RTS &&
		    (it->id->ps != RDMA_PS_UDP || it->datagrams.qp_num))
			return place;
	}
	return -1;
}

/* That of this end which takes what the other one's queue pair `sender` sends to the number `wanted`. */
static int ready_to_take(uint32_t sender, uint32_t wanted)
{
	for (int i = 0; i < IDS; i++) {
		uint32_t number = 0;
		if (!t.ids[i].id || !t.ids[i].has_qp || t.ids[i].id->qp->qp_num != wanted)
			continue;
		if (state_of(i, &number) != IBV_QPS_RTS)
			return -1;
		return t.ids[i].id->ps == RDMA_PS_UDP || number == sender ? i : -1;
	}
	return -1;
}

static void wait_for_completion(struct ibv_cq *cq, const char *name)
{
	struct ibv_wc it;
	for (unsigned waited = 0; waited < WAIT_MS; waited++) {
		if (ibv_poll_cq(cq, 1, &it) == 1) {
			out("%s=%u", name, it.status);
			if (!it.status)
				out("%s-opcode=%u", name, it.opcode);
			if (!it.status && it.opcode >= IBV_WC_RECV)
				out("%s-bytes=%u %s-immediate=%#x", name, it.byte_len, name,
				    it.wc_flags & IBV_WC_WITH_IMM ? ntohl(it.imm_data) : 0);
			return;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	out("%s=none", name);
}

static void send_one(int place, uint32_t opcode, uint32_t len, struct message target)
{
	struct rdma_cm_id *id = t.ids[place].id;
	uint8_t *memory = t.regions[0].memory;
	struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge piece = { (uintptr_t)memory, len, mr ? mr->lkey : 0 };
	struct ibv_send_wr it = { .sg_list = &piece, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_ah *handle = NULL;
	if (id->ps == RDMA_PS_UDP) {
		handle = ibv_create_ah(id->pd, &t.ids[place].datagrams.ah_attr);
		it.wr.ud.ah = handle;
		it.wr.ud.remote_qpn = t.ids[place].datagrams.qp_num;
		it.wr.ud.remote_qkey = t.ids[place].datagrams.qkey;
	} else {
		it.wr.rdma.remote_addr = target.values[1];
		it.wr.rdma.rkey = (uint32_t)target.values[2];
	}
	it.imm_data = htonl(0x12345678);
	int code = ibv_post_send(id->qp, &it, &bad);
	result_code(code);
	if (!code)
		wait_for_completion(id->send_cq, "sent");
	tell((struct message){ 0 });
	if (opcode == IBV_WR_RDMA_READ)
		out("sum=%#x", sum_of(memory, len));
	if (handle)
		ibv_destroy_ah(handle);
	if (mr)
		ibv_dereg_mr(mr);
}

/* Offers this end's memory, and a receive where the operation takes one. */
static void take_one(int place, uint32_t opcode, uint32_t len)
{
	struct rdma_cm_id *id = t.ids[place].id;
	uint8_t *memory = t.regions[1].memory;
	struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, BUFFER,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	int takes = opcode != IBV_WR_RDMA_WRITE && opcode != IBV_WR_RDMA_READ, code = 0;
	struct ibv_sge piece = { (uintptr_t)memory, BUFFER, mr ? mr->lkey : 0 };
	struct ibv_recv_wr receive = { .sg_list = &piece, .num_sge = 1 }, *bad;
	if (takes)
		code = ibv_post_recv(id->qp, &receive, &bad);
	result_code(code);
	tell((struct message){ .has = 1, .values = { 0, (uintptr_t)memory, mr ? mr->rkey : 0 } });
	if (takes && !code)
		wait_for_completion(id->recv_cq, "taken");
	tell((struct message){ 0 });
	out("sum=%#x", sum_of(memory + (id->ps == RDMA_PS_UDP ? 40 : 0), len));
	memset(memory, 0, 40); /* the headers of a datagram have numbers that are drawn, and may be read later */
	if (mr)
		ibv_dereg_mr(mr);
}

/* Sends from one end to the other where both have connected queue pairs. */
static void transfer(int is_mine)
{
	uint32_t opcode = ONE_OF(IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
				 IBV_WR_RDMA_READ);
	uint32_t len = ONE_OF(1, 12, 1024, 3000), number = 0;
	int place = -1;
	if (is_mine) {
		call("ibv_post_send");
		place = ready_to_send();
		struct message mine = { .has = place >= 0 && !t.has_timeout };
		if (place >= 0 && t.ids[place].id->ps == RDMA_PS_UDP) {
			opcode = pick(2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
			number = t.ids[place].datagrams.qp_num;
			len = len > 1024 ? 1024 : len;
		} else if (place >= 0) {
			state_of(place, &number);
		}
		arg("id=%s op=%u len=%u", index_name('i', place), opcode, len);
		if (mine.has) {
			mine.values[0] = t.ids[place].id->qp->qp_num;
			mine.values[1] = number;
			mine.values[2] = opcode;
			mine.values[3] = len;
		}
		tell(mine);
		struct message target = tell((struct message){ 0 });
		if (target.has)
			send_one(place, opcode, len, target);
	} else {
		call("peer");
		struct message asked = tell((struct message){ 0 });
		if (asked.has && !t.has_timeout)
			place = ready_to_take((uint32_t)asked.values[0], (uint32_t)asked.values[1]);
		arg("sends to=%s", index_name('i', place));
		if (place >= 0)
			take_one(place, (uint32_t)asked.values[2], (uint32_t)asked.values[3]);
		else
			tell((struct message){ 0 });
	}
	end_call();
	settle_ends();
}

static void some_transfer(int is_mine)
{
	turns++;
	random_start(sequence_seed, 0x10000 + turns);
	transfer(is_mine);
}

/* --- sequences --- */

/* Destroys an identifier at each end that has no place for a new connection. */
static void make_room(void)
{
	for (int again = 1; again;) {
		int is_live = 0;
		for (int i = 0; i < IDS; i++)
			is_live += t.ids[i].id != NULL;
		struct message mine = { .has = is_live > IDS - 2 }, theirs = tell(mine);
		again = mine.has || theirs.has;
		if (!again)
			break;
		/* That of end a comes first. */
		if (turn_of(t.end == 'a' ? (int)mine.has : !theirs.has))
			leave(some_id(), 1);
		settle_ends();
	}
}

/* Establishes a connection between the ends, or does a part of it; what draws is common to both. */
static void connection_of_ends(void)
{
	int listens = t.end == (pick(2) ? 'a' : 'b'), stops = chance(30) ? (int)pick(5) : 5;
	uint32_t space = chance(65) ? RDMA_PS_TCP : RDMA_PS_UDP, port = pick(PORTS), change = pick(12);
	int client_has_qp = chance(90), server_has_qp = chance(90), accepts = chance(80);
	int listener = -1, client = -1, server = -1;
	uint32_t transfers = pick(4), senders = pick(8);
	make_room();
	t.newest_request = -1;
	if (turn_of(listens))
		listener = listen_at(space, port);
	settle_ends();
	if (turn_of(!listens))
		client = resolve(space, port);
	settle_ends();
	if (stops < 1)
		return;
	if (turn_of(!listens))
		find_route(client);
	settle_ends();
	if (stops < 2)
		return;
	if (client_has_qp) {
		if (turn_of(!listens))
			give_qp(client);
		settle_ends();
	}
	if (turn_of(!listens))
		request(client);
	settle_ends();
	server = t.newest_request;
	if (stops < 3)
		return;
	/* The request waits for its answer meanwhile. */
	if (change < 4) {
		int is_listeners = change < 2;
		if (turn_of(listens == is_listeners))
			leave(change == 0 ? listener : change == 1 ? server : client, change != 3);
		settle_ends();
		if (change == 1)
			server = -1;
		if (change == 2)
			client = -1;
	}
	if (server_has_qp && accepts) {
		if (turn_of(listens))
			give_qp(server);
		settle_ends();
	}
	if (turn_of(listens))
		answer(server, accepts);
	settle_ends();
	if (!client_has_qp) {
		if (turn_of(!listens))
			finish_establishing(client);
		settle_ends();
	}
	for (uint32_t i = 0; i < transfers; i++)
		some_transfer(t.end == (senders >> i & 1 ? 'a' : 'b'));
	if (stops < 4) {
		if (turn_of(listens))
			leave(server, 0);
		settle_ends();
		if (turn_of(!listens))
			leave(client, 0);
		settle_ends();
	}
}

void two_ends(uint64_t seed, uint32_t calls)
{
	uint32_t first = 16000 + (uint32_t)(seed % 2048) * 2 * PORTS;
	sequence_seed = seed;
	t.first_port = first + (t.end == 'b' ? PORTS : 0);
	t.peer_port = first + (t.end == 'a' ? PORTS : 0);
	t.cm = rdma_create_event_channel();
	/* librdmacm drops events behind a failed connection, and waits for the next one then. */
	fcntl(t.cm->fd, F_SETFL, fcntl(t.cm->fd, F_GETFL) | O_NONBLOCK);
	if (meet(seed))
		return;
	random_start(seed, 0);
	call("rdma_create_event_channel");
	arg("two ends");
	result_pointer(t.cm);
	end_call();
	int is_double = chance(60);
	connection_of_ends();
	random_start(seed, 0x8000);
	if (is_double)
		connection_of_ends();
	for (uint32_t step = 1; step <= calls; step++) {
		random_start(seed, step);
		int is_mine = t.end == (pick(2) ? 'a' : 'b');
		uint32_t kind = pick(100);
		printf("%02u ", step);
		if (kind < 10) {
			connection_of_ends();
		} else if (kind < 20) {
			transfer(is_mine);
		} else if (is_mine) {
			some_step((const struct step *const[]){ cm_steps }, 1)->run();
			settle_ends();
		} else {
			call("peer");
			end_call();
			settle_ends();
		}
	}
	/* An end that ends has events at the other one. */
	tell((struct message){ 0 });
}
