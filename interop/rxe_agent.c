/*
 * rxe_agent: does on libibverbs what a test orders, line by line.
 *
 * Usage: rxe_agent [DEVICE]        (orders on standard input; README.md lists them)
 *
 * Every order is answered on standard output with one line, "ok ..." or "error ...", before the
 * next is read; `wait` puts one "wc ..." line for each completion in front. A failing order
 * changes nothing and does not end the program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include <infiniband/verbs.h>

#define MAX_OBJECTS 256
#define MAX_WORDS 32
#define MAX_SGES 32
#define NAME_LEN 16

enum kind { NOTHING, REGION, QUEUE_PAIR };

struct object {
	enum kind kind;
	char name[NAME_LEN];
	/* REGION */
	struct ibv_mr *mr;
	size_t size; /* mapped at mr->addr */
	struct ibv_mw *mw; /* NULL unless lent: the window that peers use */
	/* QUEUE_PAIR */
	struct ibv_qp *qp;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_comp_channel *send_channel, *recv_channel;
	uint8_t gid_index;
	uint32_t psn;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct object objects[MAX_OBJECTS];

/* ---- answers and words ---------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static void ok(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	printf("ok%s", *format ? " " : "");
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
}

/* Answers with an error; `code` is an errno or 0. Returns -1 for convenience. */
__attribute__((format(printf, 2, 3))) static int fail(int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	printf("error ");
	vprintf(format, arguments);
	if (code)
		printf(": %s", strerror(code));
	printf("\n");
	va_end(arguments);
	return -1;
}

/* The text after "key=" among the words, or NULL. */
static const char *text(char **words, const char *key)
{
	size_t len = strlen(key);
	for (; *words; words++)
		if (strncmp(*words, key, len) == 0 && (*words)[len] == '=')
			return *words + len + 1;
	return NULL;
}

static int bad_number; /* set by number(), looked at once an order's words are read */

static uint64_t number(char **words, const char *key, uint64_t otherwise)
{
	const char *from = text(words, key);
	if (!from)
		return otherwise;
	char *end;
	errno = 0;
	uint64_t value = strtoull(from, &end, 0);
	if (errno || *end || end == from)
		bad_number = 1;
	return value;
}

/* ---- objects -------------------------------------------------------------------------- */

static struct object *find(const char *name, enum kind kind)
{
	for (int i = 0; name && i < MAX_OBJECTS; i++)
		if (objects[i].kind == kind && strcmp(objects[i].name, name) == 0)
			return &objects[i];
	fail(0, "no such %s: %s", kind == REGION ? "region" : "queue pair",
	     name ? name : "(none named)");
	return NULL;
}

/* A free place for an object to be called `name`. The caller sets its kind when it is whole. */
static struct object *place(const char *name)
{
	struct object *free_place = NULL;
	if (!name || strlen(name) >= NAME_LEN) {
		fail(0, "a name of 1 to %d letters is needed", NAME_LEN - 1);
		return NULL;
	}
	for (int i = 0; i < MAX_OBJECTS; i++) {
		if (objects[i].kind == NOTHING) {
			if (!free_place)
				free_place = &objects[i];
		} else if (strcmp(objects[i].name, name) == 0) {
			fail(0, "the name %s is taken", name);
			return NULL;
		}
	}
	if (!free_place) {
		fail(0, "no more than %d objects", MAX_OBJECTS);
		return NULL;
	}
	memset(free_place, 0, sizeof *free_place);
	strcpy(free_place->name, name);
	return free_place;
}

/* ---- memory --------------------------------------------------------------------------- */

/* The eight bytes number `index` of the pattern of `seed`, the first in the lowest place. */
static uint64_t pattern(uint64_t seed, uint64_t index)
{
	uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Byte i of the pattern depends on seed and i alone: both sides can make any part of it. */
static void fill(unsigned char *at, uint64_t len, uint64_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		at[i] = (unsigned char)(pattern(seed, i / 8) >> (8 * (i % 8)));
}

static uint32_t crc32_of(const unsigned char *at, uint64_t len)
{
	static uint32_t table[256];
	if (!table[1])
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t value = i;
			for (int bit = 0; bit < 8; bit++)
				value = value & 1 ? 0xedb88320u ^ value >> 1 : value >> 1;
			table[i] = value;
		}
	uint32_t crc = ~0u;
	while (len--)
		crc = table[(crc ^ *at++) & 0xff] ^ crc >> 8;
	return ~crc;
}

/* Checks that offset and len lie in the region; answers with an error if not. */
static int inside(const struct object *region, uint64_t offset, uint64_t len)
{
	if (offset <= region->size && len <= region->size - offset)
		return 1;
	fail(0, "%" PRIu64 "+%" PRIu64 " is not inside the %zu bytes of %s", offset, len,
	     region->size, region->name);
	return 0;
}

static int access_flags(const char *letters)
{
	int flags = 0;
	for (; letters && *letters; letters++)
		switch (*letters) {
		case 'l': flags |= IBV_ACCESS_LOCAL_WRITE; break;
		case 'w': flags |= IBV_ACCESS_REMOTE_WRITE; break;
		case 'r': flags |= IBV_ACCESS_REMOTE_READ; break;
		case 'a': flags |= IBV_ACCESS_REMOTE_ATOMIC; break;
		case 'b': flags |= IBV_ACCESS_MW_BIND; break;
		case '-': break;
		default: return -1;
		}
	return flags;
}

/* Maps and registers `size` zeroed bytes. Answers with an error when that fails. */
static int register_memory(struct object *region, uint64_t size, int access)
{
	if (size == 0 || size > 1u << 30)
		return fail(0, "a region has 1 to 2^30 bytes");
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return fail(errno, "memory for %s", region->name);
	region->mr = ibv_reg_mr(pd, memory, size, access);
	if (!region->mr) {
		int code = errno;
		munmap(memory, size);
		return fail(code, "register %s", region->name);
	}
	region->size = size;
	return 0;
}

/* Undoes register_memory, and the window if there is one. Returns an errno or 0. */
static int release_region(struct object *region)
{
	int code = region->mw ? ibv_dealloc_mw(region->mw) : 0;
	if (code)
		return code;
	region->mw = NULL;
	void *memory = region->mr->addr;
	code = ibv_dereg_mr(region->mr);
	if (!code)
		munmap(memory, region->size);
	return code;
}

static int order_mr(char **words)
{
	struct object *region = place(words[1]);
	uint64_t size = number(words, "size", 0), seed = number(words, "seed", 0);
	const char *rights = text(words, "rights");
	int access = access_flags(rights ? rights : "l");
	if (!region)
		return -1;
	if (bad_number || access < 0)
		return fail(0, "mr NAME size=N rights=lwrab seed=N");
	if (register_memory(region, size, access))
		return -1;
	if (text(words, "seed"))
		fill(region->mr->addr, size, seed);
	region->kind = REGION;
	ok("lkey=%#x rkey=%#x address=%#" PRIx64, region->mr->lkey, region->mr->rkey,
	   (uint64_t)(uintptr_t)region->mr->addr);
	return 0;
}

static int order_memory(char **words)
{
	struct object *region = find(words[1], REGION);
	uint64_t offset = number(words, "offset", 0);
	int is_value = strcmp(words[0], "get") == 0 || strcmp(words[0], "set") == 0;
	uint64_t len = is_value ? 8 : number(words, "len", region ? region->size - offset : 0);
	uint64_t seed = number(words, "seed", 0), value = number(words, "value", 0);
	if (!region)
		return -1;
	if (bad_number)
		return fail(0, "fill|crc|get|set NAME offset=N len=N seed=N value=N");
	if (!inside(region, offset, len))
		return -1;
	unsigned char *at = (unsigned char *)region->mr->addr + offset;
	if (strcmp(words[0], "fill") == 0) {
		fill(at, len, seed);
		ok("%s", "");
	} else if (strcmp(words[0], "crc") == 0) {
		ok("crc=%#x", crc32_of(at, len));
	} else if (strcmp(words[0], "set") == 0) {
		memcpy(at, &value, 8);
		ok("%s", "");
	} else {
		memcpy(&value, at, 8);
		ok("value=%#" PRIx64, value);
	}
	return 0;
}

/* ---- queue pairs ---------------------------------------------------------------------- */

static void destroy_qp(struct object *pair)
{
	if (pair->qp)
		ibv_destroy_qp(pair->qp);
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

static int order_qp(char **words)
{
	struct object *pair = place(words[1]);
	uint64_t depth_send = number(words, "send_wr", 64), depth_recv = number(words, "recv_wr", 64);
	uint64_t family = number(words, "family", 4), inline_len = number(words, "inline", 0);
	uint64_t psn = number(words, "psn", UINT64_MAX);
	const char *rights = text(words, "access");
	int access = access_flags(rights ? rights : "wra");
	if (!pair)
		return -1;
	if (bad_number || access < 0 || depth_send > 16384 || depth_recv > 16384)
		return fail(0, "qp NAME family=4|6 send_wr=N recv_wr=N inline=N psn=N access=wra");
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
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = (uint32_t)depth_send, .max_recv_wr = (uint32_t)depth_recv,
			 .max_send_sge = MAX_SGES, .max_recv_sge = MAX_SGES,
			 .max_inline_data = (uint32_t)inline_len },
	};
	pair->qp = ibv_create_qp(pd, &init);
	int code = pair->qp ? 0 : errno;
	if (pair->qp) {
		struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_INIT, .port_num = 1,
						  .qp_access_flags = (unsigned)access };
		code = ibv_modify_qp(pair->qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				     IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	}
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

static int order_connect(char **words)
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
			     .grh = { .hop_limit = 64, .sgid_index = pair->gid_index } },
		.timeout = (uint8_t)number(words, "timeout", 14),
		.retry_cnt = (uint8_t)number(words, "retry", 7),
		.rnr_retry = (uint8_t)number(words, "rnr_retry", 7),
		.sq_psn = pair->psn,
		.max_rd_atomic = (uint8_t)number(words, "rd_atomic", 16),
	};
	if (bad_number || !attributes.path_mtu || !attributes.dest_qp_num ||
	    parse_gid(text(words, "gid"), &attributes.ah_attr.grh.dgid))
		return fail(0, "connect NAME qpn=N psn=N gid=32DIGITS mtu=BYTES timeout=N retry=N "
			       "rnr_retry=N min_rnr_timer=N rd_atomic=N dest_rd_atomic=N");
	int code = ibv_modify_qp(pair->qp, &attributes,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (code)
		return fail(code, "%s to ready to receive", pair->name);
	attributes.qp_state = IBV_QPS_RTS;
	code = ibv_modify_qp(pair->qp, &attributes,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (code)
		return fail(code, "%s to ready to send", pair->name);
	ok("%s", "");
	return 0;
}

static const char *const states[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERROR" };

static int order_state(char **words)
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

static int order_error(char **words)
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

/* ---- work ----------------------------------------------------------------------------- */

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

static int order_recv(char **words)
{
	struct object *pair = find(words[1], QUEUE_PAIR);
	struct ibv_sge sges[MAX_SGES];
	uint64_t count = number(words, "count", 1), id = number(words, "id", 0);
	uint64_t step = number(words, "step", 0);
	int entries = pair ? gather(words, sges) : -1;
	if (entries < 0)
		return -1;
	if (bad_number)
		return fail(0, "recv NAME mr=NAME offset=N len=N sges=N count=N step=N id=N");
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_recv_wr work = { .wr_id = id + i, .sg_list = sges, .num_sge = entries };
		struct ibv_recv_wr *bad;
		int code = ibv_post_recv(pair->qp, &work, &bad);
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
};

static int order_post(char **words)
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
		if (work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
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
		int code = ibv_post_send(pair->qp, &work, &bad);
		if (code)
			return fail(code, "%s %" PRIu64 " of %" PRIu64, name, i + 1, count);
		for (int entry = 0; entry < entries; entry++)
			sges[entry].addr += step;
	}
	ok("%s", "");
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void print_completion(const struct ibv_wc *wc)
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

static int order_wait(char **words)
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
			print_completion(&wc);
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

/* ---- lending -------------------------------------------------------------------------- */

/* Binds a type 2 window to all of `region` and waits for it. */
static int bind(struct object *pair, struct object *region)
{
	struct ibv_send_wr work = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = region->mw, .rkey = ibv_inc_rkey(region->mw->rkey),
			     .bind_info = { .mr = region->mr,
					    .addr = (uint64_t)(uintptr_t)region->mr->addr,
					    .length = region->size,
					    .mw_access_flags = IBV_ACCESS_REMOTE_WRITE |
							       IBV_ACCESS_REMOTE_READ |
							       IBV_ACCESS_REMOTE_ATOMIC } },
	};
	struct ibv_send_wr *bad;
	int code = ibv_post_send(pair->qp, &work, &bad);
	if (code)
		return fail(code, "bind a window to %s", region->name);
	struct ibv_wc wc;
	int got = 0;
	for (int64_t deadline = now_ms() + 5000; got == 0 && now_ms() < deadline;)
		got = ibv_poll_cq(pair->send_cq, 1, &wc);
	if (got != 1 || wc.status != IBV_WC_SUCCESS)
		return fail(0, "bind a window to %s: %s", region->name,
			    got == 1 ? ibv_wc_status_str(wc.status) : "no completion");
	region->mw->rkey = work.bind_mw.rkey;
	return 0;
}

/* rxe does not invalidate ordinary regions; it does invalidate windows of type 2. */
static int order_lend(char **words)
{
	struct object *pair = find(text(words, "qp"), QUEUE_PAIR);
	struct object *region = pair ? place(words[1]) : NULL;
	uint64_t size = number(words, "size", 0);
	if (!region)
		return -1;
	if (bad_number || register_memory(region, size, access_flags("lwrab")))
		return bad_number ? fail(0, "lend NAME qp=NAME size=N") : -1;
	region->mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (!region->mw || bind(pair, region)) {
		int code = errno;
		int is_bound = region->mw != NULL;
		release_region(region);
		return is_bound ? -1 : fail(code, "window for %s", words[1]);
	}
	region->kind = REGION;
	ok("lkey=%#x rkey=%#x address=%#" PRIx64, region->mr->lkey, region->mw->rkey,
	   (uint64_t)(uintptr_t)region->mr->addr);
	return 0;
}

static int order_counter(char **words)
{
	char path[256];
	unsigned long long value;
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/%s",
		 ibv_get_device_name(context->device), words[1] ? words[1] : "");
	FILE *file = fopen(path, "r");
	if (!file)
		return fail(errno, "%s", path);
	int got = fscanf(file, "%llu", &value);
	fclose(file);
	if (got != 1)
		return fail(0, "%s holds no number", path);
	ok("value=%llu", value);
	return 0;
}

/* ---- the rest ------------------------------------------------------------------------- */

static int order_drop(char **words)
{
	for (int i = 0; words[1] && i < MAX_OBJECTS; i++) {
		struct object *object = &objects[i];
		if (object->kind == NOTHING || strcmp(object->name, words[1]))
			continue;
		int code = 0;
		if (object->kind == QUEUE_PAIR)
			destroy_qp(object);
		else
			code = release_region(object);
		if (code)
			return fail(code, "drop %s", object->name);
		object->kind = NOTHING;
		ok("%s", "");
		return 0;
	}
	return fail(0, "nothing is called %s", words[1] ? words[1] : "that");
}

static const struct { const char *name; int (*obey)(char **words); } orders[] = {
	{ "mr", order_mr },	    { "fill", order_memory }, { "crc", order_memory },
	{ "get", order_memory },    { "set", order_memory },  { "qp", order_qp },
	{ "connect", order_connect }, { "state", order_state }, { "error", order_error },
	{ "recv", order_recv },	    { "post", order_post },   { "wait", order_wait },
	{ "lend", order_lend },	    { "counter", order_counter }, { "drop", order_drop },
};

static int open_device(const char *name)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (!list)
		return fail(errno, "list devices");
	for (int i = 0; i < count && !context; i++)
		if (!name || strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!context)
		return fail(0, "no device %s", name ? name : "at all");
	pd = ibv_alloc_pd(context);
	if (!pd)
		return fail(errno, "protection domain");
	ok("device=%s", ibv_get_device_name(context->device));
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (open_device(argc > 1 ? argv[1] : NULL))
		return 1;
	char *line = NULL;
	size_t capacity = 0;
	while (getline(&line, &capacity, stdin) > 0) {
		char *words[MAX_WORDS + 1] = { NULL };
		char *rest = line;
		for (int i = 0; i < MAX_WORDS; i++)
			if (!(words[i] = strtok_r(i ? NULL : line, " \t\n", &rest)))
				break;
		if (!words[0])
			continue;
		bad_number = 0;
		size_t order = 0, known = sizeof orders / sizeof *orders;
		while (order < known && strcmp(orders[order].name, words[0]))
			order++;
		if (order == known)
			fail(0, "no such order: %s", words[0]);
		else
			orders[order].obey(words);
	}
	free(line);
	return 0;
}
