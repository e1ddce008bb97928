/* Calls of librdmacm: both ends of each connection are identifiers of this process, on one channel. */
#define _GNU_SOURCE
#include "sequences.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

/* The result of a call that an event may answer; a busy machine takes its time. */
static void result_request(int code)
{
	result_code(code);
	/* With two ends a refused call is waited for, too: see lockstep.c. */
	t.pending_ms = code == 0 || t.end ? 600 : 0;
}

/* The device's own address, or another one. */
struct sockaddr *address(uint32_t form, uint32_t port)
{
	static struct sockaddr_in result;
	memset(&result, 0, sizeof result);
	result.sin_family = AF_INET;
	result.sin_port = htons((uint16_t)port);
	if (form == 0)
		memcpy(&result.sin_addr, t.gid.raw + 12, 4);
	else if (form == 1)
		result.sin_addr.s_addr = htonl(INADDR_ANY);
	else if (form == 2)
		inet_pton(AF_INET, "203.0.113.9", &result.sin_addr);
	else
		inet_pton(AF_INET, "127.0.0.1", &result.sin_addr);
	return (struct sockaddr *)&result;
}

/* Sequences that run at the same time have ports of their own. */
static uint32_t some_port(void)
{
	return t.first_port + pick(t.end ? 4 : 2);
}

static uint32_t some_form(void)
{
	return chance(88) ? 0 : ONE_OF(1, 2, 3);
}

static void create_id(void)
{
	int place = free_id();
	uint32_t space = chance(85) ? RDMA_PS_TCP : ONE_OF(RDMA_PS_UDP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB, 0, 0x1234);
	call("rdma_create_id");
	arg("place=%s space=%#x", index_name('i', place), space);
	if (place >= 0) {
		struct identifier *it = &t.ids[place];
		*it = (struct identifier){ 0 };
		result_code(rdma_create_id(t.cm, &it->id, it, (enum rdma_port_space)space));
		if (it->id)
			out("context=%d space=%#x verbs=%d qp=%d", it->id->context == it, it->id->ps, it->id->verbs != NULL,
			    it->id->qp != NULL);
	}
	end_call();
}

static void bind_addr(void)
{
	int place = some_id();
	uint32_t form = some_form(), port = chance(20) ? 0 : some_port();
	call("rdma_bind_addr");
	arg("id=%s form=%u port=%d", index_name('i', place), form, port ? (int)(port - t.first_port) : -1);
	if (place >= 0) {
		int code = rdma_bind_addr(t.ids[place].id, address(form, port));
		result_code(code);
		if (!code)
			t.ids[place].is_from_loopback = form == 3;
		out("verbs=%d port=%d", t.ids[place].id->verbs != NULL, rdma_get_src_port(t.ids[place].id) != 0);
	}
	end_call();
}

static void listen_on(void)
{
	int place = some_id();
	uint32_t backlog = ONE_OF(0, 1, 8, 8, UINT32_MAX);
	call("rdma_listen");
	arg("id=%s backlog=%d", index_name('i', place), (int)backlog);
	if (place >= 0)
		result_code(rdma_listen(t.ids[place].id, (int)backlog));
	end_call();
}

static void resolve_addr(void)
{
	int place = some_id();
	uint32_t form = chance(92) ? 0 : 3, has_source = chance(20);
	uint32_t port = some_port();
	call("rdma_resolve_addr");
	arg("id=%s form=%u port=%d source=%u", index_name('i', place), form, (int)(port - t.first_port), has_source);
	if (place >= 0) {
		struct sockaddr_in source = *(struct sockaddr_in *)address(0, 0);
		struct sockaddr_in target = *(struct sockaddr_in *)address(form, port);
		if (t.end && form == 0) {
			target.sin_addr = t.peer_address;
			target.sin_port = htons((uint16_t)(port - t.first_port + t.peer_port));
		}
		if (t.ids[place].is_from_loopback)
			arg("from-loopback");
		int code = rdma_resolve_addr(t.ids[place].id, has_source ? (struct sockaddr *)&source : NULL,
					     (struct sockaddr *)&target, 1000);
		result_request(code);
		if (!code)
			t.ids[place].is_to_loopback = form == 3;
	}
	end_call();
	settle_connections();
}

static void resolve_route(void)
{
	int place = some_id();
	call("rdma_resolve_route");
	arg("id=%s", index_name('i', place));
	if (place >= 0 && t.ids[place].id->verbs) { /* librdmacm dereferences the device */
		result_request(rdma_resolve_route(t.ids[place].id, 1000));
	}
	end_call();
	settle_connections();
}

int make_qp(int place)
{
	struct identifier *it = &t.ids[place];
	struct ibv_qp_init_attr attributes = {
		.cap = { 16, 16, 2, 2, 64 },
		.qp_type = it->id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
	};
	/* Its protection domain and completion queues are librdmacm's own, of the context that this has. */
	int code = rdma_create_qp(it->id, NULL, &attributes);
	result_code(code);
	if (!code) {
		struct ibv_qp_attr state = { 0 };
		struct ibv_qp_init_attr init;
		it->has_qp = 1;
		ibv_query_qp(it->id->qp, &state, IBV_QP_STATE, &init);
		out("number=%s state=%u", named('Q', it->id->qp->qp_num), state.qp_state);
	}
	return code;
}

static void create_qp(void)
{
	int place = some_id();
	call("rdma_create_qp");
	arg("id=%s", index_name('i', place));
	if (place >= 0 && !t.ids[place].has_qp && t.ids[place].id->verbs) /* librdmacm dereferences the device */
		make_qp(place);
	end_call();
}

static void destroy_qp(void)
{
	int place = some_id();
	call("rdma_destroy_qp");
	arg("id=%s", index_name('i', place));
	if (place >= 0 && t.ids[place].has_qp) {
		rdma_destroy_qp(t.ids[place].id);
		t.ids[place].has_qp = 0;
		result_text("done");
	}
	end_call();
}

struct rdma_conn_param parameters(void)
{
	static char data[256] = "private data";
	struct rdma_conn_param it = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 1, .rnr_retry_count = 1 };
	uint32_t len = chance(70) ? 0 : ONE_OF(1, 12, 56, 57, 148, 196, 255);
	if (len)
		it.private_data = data;
	it.private_data_len = (uint8_t)len;
	if (chance(15)) {
		it.responder_resources = (uint8_t)ONE_OF(0, 128, 255);
		it.initiator_depth = (uint8_t)ONE_OF(0, 128, 255);
	}
	/* The kernel refuses a second connection of a queue pair, also one of another sequence. */
	it.qp_num = t.end ? 0x800000 + t.first_port * 64 + ++t.made_up % 64 : 77;
	arg("data=%u resources=%u depth=%u", len, it.responder_resources, it.initiator_depth);
	return it;
}

/* What refuses a connection that waits for its peer leaves the kernel's message, which is repeated for a minute and longer:
 * destroying the identifier waits for that. With two ends the other one would, too. */
int is_slow_to_end(int place)
{
	return t.end && t.ids[place].is_waiting;
}

static void connect_id(void)
{
	int place = some_id();
	call("rdma_connect");
	arg("id=%s qp=%d", index_name('i', place), place >= 0 && t.ids[place].has_qp);
	if (place >= 0 && t.ids[place].is_to_loopback)
		arg("to-loopback");
	struct rdma_conn_param it = parameters();
	if (place >= 0 && t.ids[place].id->verbs) { /* librdmacm dereferences the device */
		int code = rdma_connect(t.ids[place].id, &it);
		result_request(code);
		t.ids[place].is_waiting |= !code;
	}
	end_call();
	settle_connections();
}

static void accept_id(void)
{
	int place = some_id();
	call("rdma_accept");
	arg("id=%s qp=%d", index_name('i', place), place >= 0 && t.ids[place].has_qp);
	struct rdma_conn_param it = parameters();
	if (place >= 0 && t.ids[place].id->verbs && !is_slow_to_end(place)) {
		int code = rdma_accept(t.ids[place].id, &it);
		result_request(code);
		t.ids[place].is_waiting |= !code;
	}
	end_call();
	settle_connections();
}

static void reject(void)
{
	int place = some_id();
	uint32_t len = ONE_OF(0, 1, 148, 149, 255);
	static const char data[256] = "refused";
	call("rdma_reject");
	arg("id=%s data=%u", index_name('i', place), len);
	if (place >= 0 && !is_slow_to_end(place)) {
		result_request(rdma_reject(t.ids[place].id, data, (uint8_t)len));
	}
	end_call();
	settle_connections();
}

static void disconnect(void)
{
	int place = some_id();
	call("rdma_disconnect");
	arg("id=%s qp=%d", index_name('i', place), place >= 0 && t.ids[place].has_qp);
	if (place >= 0) {
		result_request(rdma_disconnect(t.ids[place].id));
	}
	end_call();
	settle_connections();
}

static void destroy_id(void)
{
	int place = some_id();
	call("rdma_destroy_id");
	arg("id=%s", index_name('i', place));
	if (place >= 0) {
		struct identifier *it = &t.ids[place];
		if (it->has_qp)
			rdma_destroy_qp(it->id);
		result_code(rdma_destroy_id(it->id));
		it->id = NULL;
		t.pending_ms = 150; /* a peer hears of it, if there is one */
	}
	end_call();
	settle_connections();
}

static void establish(void)
{
	int place = some_id();
	int notifies = chance(50);
	call(notifies ? "rdma_notify" : "rdma_establish");
	arg("id=%s", index_name('i', place));
	if (place >= 0 && !is_slow_to_end(place)) {
		result_request(notifies ? rdma_notify(t.ids[place].id, IBV_EVENT_COMM_EST) : rdma_establish(t.ids[place].id));
	}
	end_call();
	settle_connections();
}

static void set_option(void)
{
	int place = some_id();
	static const struct { uint32_t level, name, len; } options[] = {
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1 }, { RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 4 },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 4 }, { RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 1 },
		{ RDMA_OPTION_ID, 77, 4 }, { 77, 0, 4 }, { RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 4 },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 1 },
	};
	uint32_t form = pick(8), value = ONE_OF(0, 1, 1, 255);
	call("rdma_set_option");
	arg("id=%s form=%u value=%u", index_name('i', place), form, value);
	t.has_timeout |= form == 3;
	if (place >= 0)
		result_code(rdma_set_option(t.ids[place].id, (int)options[form].level, (int)options[form].name, &value, options[form].len));
	end_call();
}

static void ask(void)
{
	int place = some_id();
	call("rdma_get_src_port");
	arg("id=%s and rdma_get_dst_port", index_name('i', place));
	if (place >= 0) {
		struct rdma_cm_id *id = t.ids[place].id;
		result_text("values");
		out("source=%d destination=%d family=%d/%d number=%u verbs=%d", rdma_get_src_port(id) != 0,
		    rdma_get_dst_port(id) != 0, rdma_get_local_addr(id)->sa_family, rdma_get_peer_addr(id)->sa_family,
		    id->port_num, id->verbs != NULL);
	}
	end_call();
}

static void init_qp_attr(void)
{
	int place = some_id(), mask = 0;
	uint32_t state = ONE_OF(IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_RESET, IBV_QPS_ERR, 99);
	call("rdma_init_qp_attr");
	arg("id=%s state=%u", index_name('i', place), state);
	if (place >= 0) {
		struct ibv_qp_attr attributes = { .qp_state = state };
		int code = rdma_init_qp_attr(t.ids[place].id, &attributes, &mask);
		result_code(code);
		if (!code)
			out("mask=%#x", mask);
	}
	end_call();
}

static void migrate_id(void)
{
	int place = some_id();
	call("rdma_migrate_id");
	arg("id=%s to its own channel", index_name('i', place));
	if (place >= 0)
		result_code(rdma_migrate_id(t.ids[place].id, t.cm));
	end_call();
}

static void multicast(void)
{
	int place = some_id();
	uint32_t leaves = pick(2);
	struct sockaddr_in group = { .sin_family = AF_INET };
	inet_pton(AF_INET, "239.1.2.3", &group.sin_addr);
	call(leaves ? "rdma_leave_multicast" : "rdma_join_multicast");
	arg("id=%s", index_name('i', place));
	if (place >= 0) {
		if (leaves)
			result_request(rdma_leave_multicast(t.ids[place].id, (struct sockaddr *)&group));
		else
			result_request(rdma_join_multicast(t.ids[place].id, (struct sockaddr *)&group, NULL));
	}
	end_call();
	settle_connections();
}

static void get_devices(void)
{
	int count = 0;
	call("rdma_get_devices");
	arg("and rdma_free_devices");
	struct ibv_context **list = rdma_get_devices(&count);
	result_pointer(list);
	if (list) {
		out("count=%d", count);
		rdma_free_devices(list);
	}
	end_call();
}

static void getaddrinfo_call(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = chance(50) ? RAI_PASSIVE : 0 }, *found = NULL;
	char text[INET_ADDRSTRLEN], port[8];
	uint32_t form = some_form();
	inet_ntop(AF_INET, &((struct sockaddr_in *)address(form, 0))->sin_addr, text, sizeof text);
	snprintf(port, sizeof port, "%u", t.first_port % 65536);
	call("rdma_getaddrinfo");
	arg("flags=%d form=%u", hints.ai_flags, form);
	int code = rdma_getaddrinfo(text, port, &hints, &found);
	result_code(code ? -1 : 0);
	if (!code) {
		out("type=%d space=%#x family=%d source=%u destination=%u route=%zu connect=%zu", found->ai_qp_type, found->ai_port_space,
		    found->ai_family, found->ai_src_len, found->ai_dst_len, found->ai_route_len, found->ai_connect_len);
		rdma_freeaddrinfo(found);
	}
	end_call();
}

/* Establishes a connection, or does as much of it as there are places for. */
static void connection(void)
{
	if (t.end) { /* it takes both ends: see ends.c */
		create_id();
		return;
	}
	int listener = free_id(), is_rejected = chance(20);
	uint32_t port = t.first_port + 2 + pick(2);
	if (listener < 0)
		return;
	t.ids[listener] = (struct identifier){ 0 };
	call("rdma_listen");
	arg("place=%s with rdma_create_id", index_name('i', listener));
	int code = rdma_create_id(t.cm, &t.ids[listener].id, &t.ids[listener], RDMA_PS_TCP);
	if (!code)
		code = rdma_bind_addr(t.ids[listener].id, address(0, port));
	if (!code)
		code = rdma_listen(t.ids[listener].id, 4);
	result_code(code);
	end_call();
	int client = free_id();
	if (client < 0)
		return;
	t.ids[client] = (struct identifier){ 0 };
	call("rdma_resolve_addr");
	arg("place=%s with rdma_create_id", index_name('i', client));
	code = rdma_create_id(t.cm, &t.ids[client].id, &t.ids[client], RDMA_PS_TCP);
	if (!code)
		code = rdma_resolve_addr(t.ids[client].id, NULL, address(0, port), 1000);
	result_request(code);
	end_call();
	settle_connections();
	call("rdma_resolve_route");
	arg("id=%s", index_name('i', client));
	result_request(rdma_resolve_route(t.ids[client].id, 1000));
	end_call();
	settle_connections();
	call("rdma_create_qp");
	arg("id=%s", index_name('i', client));
	make_qp(client);
	end_call();
	call("rdma_connect");
	arg("id=%s", index_name('i', client));
	struct rdma_conn_param it = parameters();
	int server = free_id();
	result_request(rdma_connect(t.ids[client].id, &it));
	end_call();
	settle_connections();
	if (server < 0 || !t.ids[server].id)
		return;
	if (is_rejected) {
		call("rdma_reject");
		arg("id=%s", index_name('i', server));
		result_request(rdma_reject(t.ids[server].id, NULL, 0));
	} else {
		call("rdma_create_qp");
		arg("id=%s", index_name('i', server));
		make_qp(server);
		end_call();
		call("rdma_accept");
		arg("id=%s", index_name('i', server));
		it = parameters();
		result_request(rdma_accept(t.ids[server].id, &it));
	}
	end_call();
	settle_connections();
}

void prepare_connections(void)
{
	t.cm = rdma_create_event_channel();
	call("rdma_create_event_channel");
	arg("one");
	result_pointer(t.cm);
	end_call();
	if (chance(70))
		connection();
}

const struct step cm_steps[] = {
	{ create_id, 6 },
	{ bind_addr, 5 },
	{ listen_on, 4 },
	{ resolve_addr, 5 },
	{ resolve_route, 5 },
	{ create_qp, 5 },
	{ destroy_qp, 1 },
	{ connect_id, 5 },
	{ accept_id, 5 },
	{ reject, 2 },
	{ disconnect, 4 },
	{ destroy_id, 3 },
	{ establish, 2 },
	{ set_option, 3 },
	{ ask, 3 },
	{ init_qp_attr, 3 },
	{ migrate_id, 1 },
	{ multicast, 1 },
	{ get_devices, 1 },
	{ getaddrinfo_call, 1 },
	{ connection, 2 },
	{ 0 },
};
