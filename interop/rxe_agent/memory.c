/* Regions: registering them, filling and comparing their bytes, lending them. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "agent.h"

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

/* Checks that offset and len lie in the region; replies with an error if not. */
int inside(const struct object *region, uint64_t offset, uint64_t len)
{
	if (offset <= region->size && len <= region->size - offset)
		return 1;
	fail(0, "%" PRIu64 "+%" PRIu64 " is not inside the %zu bytes of %s", offset, len,
	     region->size, region->name);
	return 0;
}

int access_flags(const char *letters)
{
	int flags = 0;
	for (; letters && *letters; letters++)
		switch (*letters) {
		case 'l': flags |= IBV_ACCESS_LOCAL_WRITE; break;
		case 'w': flags |= IBV_ACCESS_REMOTE_WRITE; break;
		case 'r': flags |= IBV_ACCESS_REMOTE_READ; break;
		case 'a': flags |= IBV_ACCESS_REMOTE_ATOMIC; break;
		case 'b': flags |= IBV_ACCESS_MW_BIND; break;
		/* IBV_ACCESS_FLUSH_GLOBAL, which rdma-core 44 does not name. */
		case 'g': flags |= 1 << 8; break;
		case 'o': flags |= IBV_ACCESS_ON_DEMAND; break;
		case '-': break;
		default: return -1;
		}
	return flags;
}

/* Maps and registers `size` zeroed bytes. Replies with an error when that fails. */
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
int release_region(struct object *region)
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

int command_mr(char **words)
{
	struct object *region = place(words[1]);
	uint64_t size = number(words, "size", 0), seed = number(words, "seed", 0);
	const char *rights = text(words, "rights");
	int access = access_flags(rights ? rights : "l");
	if (!region)
		return -1;
	if (bad_number || access < 0)
		return fail(0, "mr NAME size=N rights=lwrabgo seed=N");
	if (register_memory(region, size, access))
		return -1;
	if (text(words, "seed"))
		fill(region->mr->addr, size, seed);
	region->kind = REGION;
	ok("lkey=%#x rkey=%#x address=%#" PRIx64, region->mr->lkey, region->mr->rkey,
	   (uint64_t)(uintptr_t)region->mr->addr);
	return 0;
}

int command_memory(char **words)
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

/* Waits for the one completion of a request on windows. */
static int wait_for(struct object *pair, const char *what)
{
	struct ibv_wc wc;
	int got = 0;
	for (int64_t deadline = now_ms() + 5000; got == 0 && now_ms() < deadline;)
		got = ibv_poll_cq(pair->send_cq, 1, &wc);
	if (got == 1 && wc.status == IBV_WC_SUCCESS)
		return 0;
	return fail(0, "%s: %s", what, got == 1 ? ibv_wc_status_str(wc.status) : "no completion");
}

/* Binds the window of `region` to a range of it, with all rights, and waits for it. */
static int bind_range(struct object *pair, struct object *region, uint64_t offset, uint64_t len)
{
	struct ibv_mw_bind_info info = {
		.mr = region->mr,
		.addr = (uint64_t)(uintptr_t)region->mr->addr + offset,
		.length = len,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};
	if (region->mw->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED, .bind_info = info };
		int code = ibv_bind_mw(pair->qp, region->mw, &bind);
		return code ? fail(code, "bind a window") : wait_for(pair, "bind a window");
	}
	struct ibv_send_wr work = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = region->mw, .rkey = ibv_inc_rkey(region->mw->rkey),
			     .bind_info = info },
	};
	struct ibv_send_wr *bad;
	int code = ibv_post_send(pair->qp, &work, &bad);
	if (code)
		return fail(code, "bind a window");
	if (wait_for(pair, "bind a window"))
		return -1;
	region->mw->rkey = work.bind_mw.rkey;
	return 0;
}

static void say_window(const struct object *region, uint64_t offset)
{
	ok("lkey=%#x rkey=%#x address=%#" PRIx64, region->mr->lkey, region->mw->rkey,
	   (uint64_t)(uintptr_t)region->mr->addr + offset);
}

int command_lend(char **words)
{
	struct object *pair = find(text(words, "qp"), QUEUE_PAIR);
	struct object *region = pair ? place(words[1]) : NULL;
	uint64_t size = number(words, "size", 0), type = number(words, "type", 2);
	if (!region)
		return -1;
	if (bad_number || type < 1 || type > 2)
		return fail(0, "lend NAME qp=NAME size=N type=1|2");
	if (register_memory(region, size, access_flags("lwrab")))
		return -1;
	region->mw = ibv_alloc_mw(pd, type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	if (!region->mw || bind_range(pair, region, 0, size)) {
		int code = errno;
		int is_allocated = region->mw != NULL;
		release_region(region);
		return is_allocated ? -1 : fail(code, "window for %s", words[1]);
	}
	region->kind = REGION;
	say_window(region, 0);
	return 0;
}

/* A lent region and the queue pair that commands on its window name. */
static struct object *lent(char **words, struct object **pair)
{
	struct object *region = find(words[1], REGION);
	*pair = region ? find(text(words, "qp"), QUEUE_PAIR) : NULL;
	if (*pair && !region->mw)
		fail(0, "%s has no window", region->name);
	return *pair && region->mw ? region : NULL;
}

int command_bind(char **words)
{
	struct object *pair, *region = lent(words, &pair);
	uint64_t offset = number(words, "offset", 0), len = number(words, "len", 0);
	if (!region)
		return -1;
	if (bad_number)
		return fail(0, "bind NAME qp=NAME offset=N len=N");
	if (!inside(region, offset, len) || bind_range(pair, region, offset, len))
		return -1;
	say_window(region, offset);
	return 0;
}

int command_invalidate(char **words)
{
	struct object *pair, *region = lent(words, &pair);
	if (!region)
		return -1;
	struct ibv_send_wr *bad, work = {
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = region->mw->rkey,
	};
	int code = ibv_post_send(pair->qp, &work, &bad);
	if (code)
		return fail(code, "invalidate the window of %s", region->name);
	if (wait_for(pair, "invalidate a window"))
		return -1;
	ok("%s", "");
	return 0;
}
