/* The objects of a sequence. */
#define _GNU_SOURCE
#include "sequences.h"

#include <string.h>
#include <sys/mman.h>

struct table t;

/* Defines the two functions of a kind: a live object, and a free place. */
#define KIND(kind, count, is_live)                         \
	static int live_##kind(int i) { return (is_live); } \
	int some_##kind(void)                              \
	{                                                  \
		int from = (int)pick(count);               \
		for (int n = 0; n < (count); n++)          \
			if (live_##kind((from + n) % (count))) \
				return (from + n) % (count); \
		return -1;                                 \
	}                                                  \
	int free_##kind(void)                              \
	{                                                  \
		for (int i = 0; i < (count); i++)          \
			if (!live_##kind(i))               \
				return i;                  \
		return -1;                                 \
	}

KIND(pd, PDS, t.pds[i] != NULL)
KIND(region, REGIONS, t.regions[i].mr != NULL)
KIND(window, WINDOWS, t.windows[i] != NULL)
KIND(channel, CHANNELS, t.channels[i] != NULL)
KIND(queue, CQS, t.queues[i].cq != NULL)
KIND(srq, SRQS, t.srqs[i] != NULL)
KIND(pair, PAIRS, t.pairs[i].qp != NULL)
KIND(handle, HANDLES, t.handles[i] != NULL)
KIND(id, IDS, t.ids[i].id != NULL)

const char *index_name(char kind, int index)
{
	static char names[16][8];
	static unsigned turn;
	char *name = names[turn++ % 16];
	if (index < 0)
		return "-";
	snprintf(name, sizeof names[0], "%c%d", kind, index % 100);
	return name;
}

/* The index of the first GID of an IPv4 address, or of any RoCE v2 one. */
static int find_gid(void)
{
	struct ibv_gid_entry entry;
	int found = -1;
	for (uint32_t i = 0; i < 16; i++) {
		static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
		if (ibv_query_gid_ex(t.context, 1, i, &entry, 0) || entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		if (found >= 0 && memcmp(entry.gid.raw, mapped, 12))
			continue;
		t.gid = entry.gid;
		found = (int)i;
		if (!memcmp(entry.gid.raw, mapped, 12))
			break;
	}
	return found;
}

int open_device(const char *name)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	for (int i = 0; i < count; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			t.context = ibv_open_device(list[i]);
	}
	if (list)
		ibv_free_device_list(list);
	if (!t.context) {
		note("no device %s of %d can be opened", name, count);
		return -1;
	}
	if (ibv_query_device(t.context, &t.limits)) {
		note("the device says nothing of its limits");
		return -1;
	}
	t.gid_index = find_gid();
	/* Behind each buffer is memory that is no region: wrong addresses lead there. */
	uint8_t *memory = mmap(NULL, 2 * REGIONS * BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < REGIONS; i++) {
		t.regions[i].memory = memory + 2 * i * (int)BUFFER;
		for (unsigned n = 0; n < BUFFER; n++)
			t.regions[i].memory[n] = (uint8_t)(n * 7 + (n >> 8) + (unsigned)i * 31);
		t.regions[i].printed_sum = sum_of(t.regions[i].memory, BUFFER);
	}
	return 0;
}

/* The address of this device itself. */
void set_address_handle(struct ibv_ah_attr *attributes)
{
	memset(attributes, 0, sizeof *attributes);
	attributes->is_global = 1;
	attributes->port_num = 1;
	attributes->grh.dgid = t.gid;
	attributes->grh.sgid_index = (uint8_t)t.gid_index;
	attributes->grh.hop_limit = 64;
}

/* FNV by words of eight bytes: an emulated processor is slow. */
uint32_t sum_of(const uint8_t *bytes, size_t len)
{
	uint64_t sum = 0xcbf29ce484222325u;
	for (size_t i = 0; i + 8 <= len; i += 8) {
		uint64_t word;
		memcpy(&word, bytes + i, 8);
		sum = (sum ^ word) * 0x100000001b3u;
		sum ^= sum >> 32; /* else the highest bits of a word change the highest of the sum alone */
	}
	for (size_t i = len & ~(size_t)7; i < len; i++)
		sum = (sum ^ bytes[i]) * 0x100000001b3u;
	return (uint32_t)sum;
}
