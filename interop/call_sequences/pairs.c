/* Calls on queue pairs: creation, states, attributes. */
#define _GNU_SOURCE
#include "sequences.h"

#include <string.h>

static enum ibv_qp_type some_type(void)
{
	switch (pick(12)) {
	case 0:
		return (enum ibv_qp_type)ONE_OF(0, 1, 5, 8, 9, 10, 0xff, IBV_QPT_DRIVER);
	case 1:
	case 2:
		return IBV_QPT_UC;
	case 3:
	case 4:
	case 5:
		return IBV_QPT_UD;
	default:
		return IBV_QPT_RC;
	}
}

static int is_usual(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD;
}

static void make_pair(int place, enum ibv_qp_type type, int is_plain)
{
	int pd = some_pd(), send = some_queue(), receive = chance(50) ? send : some_queue();
	int srq = chance(15) ? some_srq() : -1;
	int signals_all = chance(30);
	struct boundary send_wr = { 16, "usual" }, receive_wr = { 16, "usual" }, send_sge = { 2, "usual" },
			receive_sge = { 2, "usual" }, inline_data = { 64, "usual" };
	if (!is_plain) {
		send_wr = boundary_above((uint32_t)t.limits.max_qp_wr, 16);
		receive_wr = boundary_above((uint32_t)t.limits.max_qp_wr, 16);
		send_sge = boundary_at((uint32_t)t.limits.max_sge, 2);
		receive_sge = boundary_at((uint32_t)t.limits.max_sge, 2);
		inline_data = boundary_above(1u << 20, 64);
	}
	call("ibv_create_qp");
	arg("place=%s type=%u pd=%s send=%s receive=%s srq=%s all=%d send_wr=%s receive_wr=%s send_sge=%s "
	    "receive_sge=%s inline=%s",
	    index_name('q', place), type, index_name('d', pd), index_name('c', send), index_name('c', receive),
	    index_name('s', srq), signals_all, send_wr.name, receive_wr.name, send_sge.name, receive_sge.name,
	    inline_data.name);
	if (place < 0 || pd < 0 || send < 0 || receive < 0) {
		result_text("skipped");
		end_call();
		return;
	}
	struct pair *pair = &t.pairs[place];
	struct ibv_qp_init_attr attributes = {
		.qp_context = pair,
		.send_cq = t.queues[send].cq,
		.recv_cq = t.queues[receive].cq,
		.srq = srq < 0 ? NULL : t.srqs[srq],
		.cap = { (uint32_t)send_wr.value, (uint32_t)receive_wr.value, (uint32_t)send_sge.value,
			 (uint32_t)receive_sge.value, (uint32_t)inline_data.value },
		.qp_type = type,
		.sq_sig_all = signals_all,
	};
	*pair = (struct pair){ .type = type, .srq = srq, .peer = -1, .signals_all = signals_all };
	pair->qp = ibv_create_qp(t.pds[pd], &attributes);
	result_pointer(pair->qp);
	if (pair->qp) {
		pair->max_send = attributes.cap.max_send_wr;
		pair->max_receive = attributes.cap.max_recv_wr;
		pair->inline_max = attributes.cap.max_inline_data;
		pair->send_pieces = attributes.cap.max_send_sge;
		pair->receive_pieces = attributes.cap.max_recv_sge;
		pair->asked_pieces = (uint32_t)send_sge.value;
		pair->asked_inline = (uint32_t)inline_data.value;
		out("state=%u type=%u context=%d srq=%d number=%s", pair->qp->state, pair->qp->qp_type,
		    pair->qp->qp_context == pair, pair->qp->srq == attributes.srq, named('Q', pair->qp->qp_num));
		out("send_wr=%s receive_wr=%s send_sge=%s receive_sge=%s inline=%s",
		    relation(attributes.cap.max_send_wr, send_wr.value),
		    relation(attributes.cap.max_recv_wr, receive_wr.value),
		    relation(attributes.cap.max_send_sge, send_sge.value),
		    relation(attributes.cap.max_recv_sge, receive_sge.value),
		    relation(attributes.cap.max_inline_data, inline_data.value));
	}
	end_call();
}

static void create_qp(void)
{
	int place = free_pair();
	enum ibv_qp_type type = some_type();
	make_pair(place, type, is_usual(type) && chance(60));
}

static void destroy_qp(void)
{
	int place = some_pair();
	call("ibv_destroy_qp");
	arg("qp=%s", index_name('q', place));
	if (place >= 0) {
		int code = ibv_destroy_qp(t.pairs[place].qp);
		result_code(code);
		if (!code)
			t.pairs[place].qp = NULL;
	}
	end_call();
}

/* The attributes that a change of state needs. */
static int needed(enum ibv_qp_type type, enum ibv_qp_state to)
{
	int is_datagram = type == IBV_QPT_UD, is_rc = type == IBV_QPT_RC;
	switch (to) {
	case IBV_QPS_INIT:
		return IBV_QP_PKEY_INDEX | IBV_QP_PORT | (is_datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	case IBV_QPS_RTR:
		if (is_datagram)
			return 0;
		return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       (is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	case IBV_QPS_RTS:
		return IBV_QP_SQ_PSN |
		       (is_rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0);
	default:
		return 0;
	}
}

static void usual_attributes(struct ibv_qp_attr *attributes, const struct pair *peer)
{
	memset(attributes, 0, sizeof *attributes);
	attributes->port_num = 1;
	attributes->qkey = QKEY;
	attributes->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_ATOMIC;
	set_address_handle(&attributes->ah_attr);
	attributes->alt_ah_attr = attributes->ah_attr;
	attributes->alt_port_num = 1;
	attributes->alt_timeout = 1;
	attributes->path_mtu = IBV_MTU_1024;
	attributes->dest_qp_num = peer ? peer->qp->qp_num : 0xffffff;
	attributes->rq_psn = attributes->sq_psn = 100;
	attributes->max_dest_rd_atomic = attributes->max_rd_atomic = 4;
	attributes->min_rnr_timer = 1;
	attributes->timeout = 1;
	attributes->retry_cnt = 1;
	attributes->rnr_retry = 1;
	attributes->cur_qp_state = IBV_QPS_RTS;
	attributes->path_mig_state = IBV_MIG_MIGRATED;
	attributes->cap = (struct ibv_qp_cap){ 16, 16, 2, 2, 64 };
	attributes->en_sqd_async_notify = 1;
	attributes->rate_limit = 1000;
}

/* Sets one attribute to a value beside its bounds, and says which. */
static void spoil(struct ibv_qp_attr *attributes)
{
	uint32_t value = ONE_OF(0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 31, 32, 63, 64, 127, 128, 254, 255);
	uint32_t bits = ONE_OF(0, 0xffffff, 0x1000000, 0x1000001, UINT32_MAX);
	switch (pick(23)) {
	case 0: attributes->port_num = (uint8_t)value; arg("port_num=%u", value); break;
	case 1: attributes->pkey_index = (uint16_t)value; arg("pkey_index=%u", value); break;
	case 2: attributes->qp_access_flags = 1u << (value % 32); arg("access=%#x", 1u << (value % 32)); break;
	case 3: attributes->path_mtu = value; arg("path_mtu=%u", value); break;
	case 4: attributes->dest_qp_num = bits; arg("dest_qp_num=%#x", bits); break;
	case 5: attributes->rq_psn = bits; arg("rq_psn=%#x", bits); break;
	case 6: attributes->sq_psn = bits; arg("sq_psn=%#x", bits); break;
	case 7: attributes->max_rd_atomic = (uint8_t)value; arg("max_rd_atomic=%u", value); break;
	case 8: attributes->max_dest_rd_atomic = (uint8_t)value; arg("max_dest_rd_atomic=%u", value); break;
	case 9: attributes->min_rnr_timer = (uint8_t)value; arg("min_rnr_timer=%u", value); break;
	case 10: attributes->timeout = (uint8_t)value; arg("timeout=%u", value); break;
	case 11: attributes->retry_cnt = (uint8_t)value; arg("retry_cnt=%u", value); break;
	case 12: attributes->rnr_retry = (uint8_t)value; arg("rnr_retry=%u", value); break;
	case 13: attributes->ah_attr.port_num = (uint8_t)value; arg("ah.port_num=%u", value); break;
	case 14: attributes->ah_attr.is_global = 0; arg("ah.is_global=0"); break;
	case 15: attributes->ah_attr.grh.sgid_index = (uint8_t)(value | 0x80); arg("ah.sgid_index=%u", value | 0x80); break;
	case 16: attributes->ah_attr.sl = (uint8_t)value; arg("ah.sl=%u", value); break;
	case 17: attributes->ah_attr.grh.hop_limit = (uint8_t)value; arg("ah.hop_limit=%u", value); break;
	case 18: attributes->ah_attr.grh.traffic_class = (uint8_t)value; arg("ah.traffic_class=%u", value); break;
	case 19: memset(&attributes->ah_attr.grh.dgid, 0, 16); arg("ah.dgid=0"); break;
	case 20: attributes->qkey = bits; arg("qkey=%#x", bits); break;
	case 21: attributes->cur_qp_state = value; arg("cur_qp_state=%u", value); break;
	default: attributes->path_mig_state = value; arg("path_mig_state=%u", value); break;
	}
}

static int change(struct pair *pair, struct ibv_qp_attr *attributes, int mask)
{
	int code = ibv_modify_qp(pair->qp, attributes, mask);
	result_code(code);
	out("state=%u", pair->qp->state);
	if (!code && mask & IBV_QP_STATE) {
		pair->state = attributes->qp_state;
		if (pair->state == IBV_QPS_RESET)
			pair->waiting = pair->is_failed = 0;
		if (pair->state == IBV_QPS_RTR) {
			pair->is_asked_in_vain = pair->hears_another = pair->hears_long = 0;
			pair->session = t.sessions;
		}
	}
	return code;
}

static void modify_qp(void)
{
	int place = some_pair();
	call("ibv_modify_qp");
	if (place < 0) {
		end_call();
		return;
	}
	struct pair *pair = &t.pairs[place];
	int peer = pair->peer >= 0 && t.pairs[pair->peer].qp ? pair->peer : chance(90) ? some_pair() : -1;
	enum ibv_qp_state to = chance(60) ? (enum ibv_qp_state)((pair->state + 1) % 7) : (enum ibv_qp_state)pick(9);
	struct ibv_qp_attr attributes;
	usual_attributes(&attributes, peer < 0 ? NULL : &t.pairs[peer]);
	attributes.qp_state = to;
	int mask = needed(pair->type, to) | IBV_QP_STATE;
	arg("qp=%s type=%u from=%u to=%u peer=%s%s", index_name('q', place), pair->type, pair->state, to,
	    index_name('q', peer), pair->is_failed ? " failed" : "");
	if (chance(12))
		mask &= ~(1 << pick(26));
	if (chance(25))
		mask |= 1 << pick(26);
	if (chance(10))
		mask &= ~IBV_QP_STATE;
	if (chance(40))
		spoil(&attributes);
	arg("mask=%#x", mask);
	if (mask & IBV_QP_CUR_STATE)
		arg(attributes.cur_qp_state == pair->state ? "knows-state" : "mistakes-state");
	if (pair->peer < 0)
		pair->peer = peer;
	t.sessions++;
	change(pair, &attributes, mask);
	end_call();
	settle();
}

void bring_up(int index, int peer)
{
	struct pair *pair = &t.pairs[index];
	static const enum ibv_qp_state path[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	struct ibv_qp_attr attributes;
	for (unsigned i = 0; i < 4; i++) {
		usual_attributes(&attributes, &t.pairs[peer]);
		attributes.qp_state = path[i];
		call("ibv_modify_qp");
		arg("qp=%s type=%u up=%u peer=%s", index_name('q', index), pair->type, path[i], index_name('q', peer));
		pair->peer = peer;
		change(pair, &attributes, needed(pair->type, path[i]) | IBV_QP_STATE);
		end_call();
	}
}

static void connect_pairs(void)
{
	int a = some_pair(), b = some_pair();
	if (a < 0) {
		note("no queue pair");
		return;
	}
	for (int n = 0; n < 8 && (a == b || t.pairs[a].type != t.pairs[b].type); n++)
		b = some_pair();
	t.sessions++;
	bring_up(a, b);
	if (a != b)
		bring_up(b, a);
	settle();
}

/* A change to the error state by the program, and what is posted there: the same for every service. */
static void end_pair(void)
{
	int place = some_pair();
	call("ibv_modify_qp");
	if (place < 0) {
		end_call();
		return;
	}
	struct pair *pair = &t.pairs[place];
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };
	arg("qp=%s type=%u from=%u to=%u%s", index_name('q', place), pair->type, pair->state, IBV_QPS_ERR,
	    pair->is_failed ? " failed" : "");
	change(pair, &attributes, IBV_QP_STATE);
	end_call();
	settle();
	if (pair->state == IBV_QPS_ERR)
		post_flushed(place);
}

static void query_qp(void)
{
	int place = some_pair();
	int mask = chance(50) ? IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_CAP | IBV_QP_AV : chance(50) ? 1 << pick(26) : 0x1ffffff;
	call("ibv_query_qp");
	if (place < 0) {
		end_call();
		return;
	}
	struct pair *pair = &t.pairs[place];
	struct ibv_qp_attr a = { 0 };
	struct ibv_qp_init_attr init = { 0 };
	arg("qp=%s type=%u mask=%#x", index_name('q', place), pair->type, mask);
	int code = ibv_query_qp(pair->qp, &a, mask, &init);
	result_code(code);
	if (!code) {
		int has_path = pair->type != IBV_QPT_UD && (pair->state == IBV_QPS_RTR || pair->state == IBV_QPS_RTS);
		out("state=%u public=%u cur=%u mig=%u qkey=%#x rq_psn=%u sq_psn=%u dest=%s access=%#x", a.qp_state,
		    pair->qp->state, a.cur_qp_state, a.path_mig_state, a.qkey, pair->is_asked_in_vain || pair->hears_another ? 0 : a.rq_psn, a.sq_psn,
		    named('Q', a.dest_qp_num), a.qp_access_flags);
		out("pkey=%u alt_pkey=%u drain=%u notify=%u rd=%u dest_rd=%u rnr_timer=%u port=%u timeout=%u retry=%u "
		    "rnr=%u alt_port=%u alt_timeout=%u rate=%u",
		    a.pkey_index, a.alt_pkey_index, a.sq_draining, a.en_sqd_async_notify, a.max_rd_atomic,
		    a.max_dest_rd_atomic, a.min_rnr_timer, a.port_num, a.timeout, a.retry_cnt, a.rnr_retry,
		    a.alt_port_num, a.alt_timeout, a.rate_limit);
		out("send_wr=%s receive_wr=%s inline=%s", relation(a.cap.max_send_wr, pair->max_send),
		    relation(a.cap.max_recv_wr, pair->max_receive), relation(a.cap.max_inline_data, pair->inline_max));
		if (has_path)
			out("mtu=%u gid=%d index=%d hop=%u class=%u label=%u sl=%u ah_port=%u global=%u dlid=%u", a.path_mtu,
			    !memcmp(&a.ah_attr.grh.dgid, &t.gid, 16), a.ah_attr.grh.sgid_index == t.gid_index,
			    a.ah_attr.grh.hop_limit, a.ah_attr.grh.traffic_class, a.ah_attr.grh.flow_label,
			    a.ah_attr.sl, a.ah_attr.port_num, a.ah_attr.is_global, a.ah_attr.dlid);
		out("init.context=%d init.send=%d init.receive=%d init.srq=%d init.type=%u init.all=%d init.send_wr=%s",
		    init.qp_context == pair, init.send_cq == pair->qp->send_cq, init.recv_cq == pair->qp->recv_cq,
		    init.srq == pair->qp->srq, init.qp_type, init.sq_sig_all,
		    relation(init.cap.max_send_wr, pair->max_send));
	}
	end_call();
}

static void multicast(void)
{
	int place = some_pair();
	uint32_t detaches = pick(2), form = pick(4);
	union ibv_gid gid = { .raw = { 0xff, 0x0e, [10] = 0xff, [11] = 0xff, 239, 1, 2, 3 } };
	if (form == 0)
		gid = t.gid;
	call(detaches ? "ibv_detach_mcast" : "ibv_attach_mcast");
	arg("qp=%s type=%d form=%u", index_name('q', place), place < 0 ? 0 : t.pairs[place].type, form);
	if (place >= 0)
		result_code(detaches ? ibv_detach_mcast(t.pairs[place].qp, &gid, 0)
				     : ibv_attach_mcast(t.pairs[place].qp, &gid, 0));
	end_call();
}

/* A protection domain, memory, a channel, two completion queues, and two queue pairs that are connected. */
void prepare_verbs(void)
{
	enum ibv_qp_type type = (const enum ibv_qp_type[]){ IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_UD }[pick(6)];
	int is_up = chance(85);
	t.pds[0] = ibv_alloc_pd(t.context);
	t.channels[0] = ibv_create_comp_channel(t.context);
	for (int i = 0; i < 2; i++) {
		t.queues[i].cq = ibv_create_cq(t.context, 128, &t.queues[i], i == 0 ? t.channels[0] : NULL, 0);
		t.regions[i].access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
		t.regions[i].mr = ibv_reg_mr(t.pds[0], t.regions[i].memory, BUFFER, (int)t.regions[i].access);
	}
	struct ibv_ah_attr attributes;
	set_address_handle(&attributes);
	t.handles[0] = ibv_create_ah(t.pds[0], &attributes);
	make_pair(0, type, 1);
	make_pair(1, type, 1);
	if (is_up && t.pairs[0].qp && t.pairs[1].qp) {
		bring_up(0, 1);
		bring_up(1, 0);
	}
}

const struct step pair_steps[] = {
	{ create_qp, 6 }, { destroy_qp, 2 }, { modify_qp, 12 }, { query_qp, 6 },
	{ connect_pairs, 6 }, { end_pair, 2 }, { multicast, 1 }, { 0 },
};
