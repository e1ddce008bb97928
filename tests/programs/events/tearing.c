/* Aligned words that a thread loads while a message arrives in them, or stores while one is sent from
 * them: neither sees a part of the other. ROUNDS sets how often each length and alignment is tried. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "check.h"
#include "events.h"

enum { LENGTHS = 64, ALIGNMENTS = 8, SLOT = 128, SLOTS = LENGTHS * ALIGNMENTS };

/* Where the other side of a message is, which no second thread touches. */
enum { STILL = SLOTS * SLOT };

enum kind { WRITE, INLINE_WRITE, SEND, INLINE_SEND, READ, KINDS };

struct shared {
	struct endpoint endpoint;
	struct connection connection;
	/* The place that the second thread looks at, or changes. */
	atomic_uint slot;
	atomic_bool is_over;
	unsigned long long looks;
};

static unsigned length_of(unsigned slot)
{
	return slot / ALIGNMENTS + 1;
}

static size_t offset_of(unsigned slot)
{
	return (size_t)slot * SLOT + slot % ALIGNMENTS;
}

/* Returns the size of the largest aligned unit at an offset of which `left` bytes follow. */
static unsigned unit_at(size_t offset, size_t left)
{
	unsigned size = 8;
	while (offset % size || size > left)
		size /= 2;
	return size;
}

static uint64_t load(const unsigned char *at, unsigned size)
{
	switch (size) {
	case 8:
		return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
	case 4:
		return __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
	case 2:
		return __atomic_load_n((const uint16_t *)at, __ATOMIC_ACQUIRE);
	default:
		return __atomic_load_n(at, __ATOMIC_ACQUIRE);
	}
}

static void check_whole(unsigned slot, size_t offset, unsigned size, uint64_t value)
{
	if (value == 0 || value == ~0ull >> (64 - 8 * size))
		return;
	fprintf(stderr, "%u bytes at an address of 8 n + %u: %u bytes at %u hold %#llx\n",
		length_of(slot), slot % ALIGNMENTS, size, (unsigned)(offset % SLOT),
		(unsigned long long)value);
	check_failed(__FILE__, __LINE__, "a unit is seen whole");
}

/* Sends one message, and waits until it has arrived. */
static void move(struct shared *shared, enum kind kind, size_t from, size_t to, unsigned length)
{
	struct endpoint *endpoint = &shared->endpoint;
	bool is_read = kind == READ, is_send = kind == SEND || kind == INLINE_SEND;
	struct ibv_sge sge = {.addr = (uintptr_t)endpoint->buffer + (is_read ? to : from),
			      .length = length,
			      .lkey = endpoint->mr->lkey};
	struct ibv_send_wr request = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = is_send   ? IBV_WR_SEND
			  : is_read ? IBV_WR_RDMA_READ
				    : IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)endpoint->buffer + (is_read ? from : to),
			    .rkey = endpoint->mr->rkey},
	};
	if (kind == INLINE_WRITE || kind == INLINE_SEND)
		request.send_flags |= IBV_SEND_INLINE;
	if (is_send)
		CHECK_EQ(post_recv(shared->connection.right, endpoint, to, length, 0), 0);
	struct ibv_send_wr *refused;
	CHECK_EQ(ibv_post_send(shared->connection.left, &request, &refused), 0);
	for (int i = 0; i < (is_send ? 2 : 1); i++)
		CHECK_EQ(next_completion(endpoint->cq).status, IBV_WC_SUCCESS);
}

static void *look(void *argument)
{
	struct shared *shared = argument;
	while (!shared->is_over) {
		unsigned slot = shared->slot, size;
		size_t begin = offset_of(slot), end = begin + length_of(slot);
		for (size_t at = begin; at < end; at += size) {
			size = unit_at(at, end - at);
			check_whole(slot, at, size, load(shared->endpoint.buffer + at, size));
			shared->looks++;
		}
	}
	return NULL;
}

static void *change(void *argument)
{
	struct shared *shared = argument;
	uint64_t value = 0;
	while (!shared->is_over) {
		unsigned slot = shared->slot;
		value = ~value;
		uint64_t *words = (uint64_t *)(shared->endpoint.buffer + (size_t)slot * SLOT);
		for (unsigned i = 0; i < (slot % ALIGNMENTS + length_of(slot) + 7) / 8; i++)
			__atomic_store_n(&words[i], value, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void check_copy(struct shared *shared, unsigned slot, size_t at)
{
	size_t begin = offset_of(slot), end = begin + length_of(slot);
	unsigned size;
	for (size_t from = begin; from < end; from += size) {
		uint64_t value = 0;
		size = unit_at(from, end - from);
		memcpy(&value, shared->endpoint.buffer + at + (from - begin), size);
		check_whole(slot, from, size, value);
		shared->looks++;
	}
}

static void start(struct shared *shared)
{
	*shared = (struct shared){.looks = 0};
	open_endpoint(&shared->endpoint, STILL + 2 * SLOT, 64);
	shared->connection = connect_to_self(&shared->endpoint, 4);
}

static void end(struct shared *shared, pthread_t thread)
{
	shared->is_over = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	printf("%llu units looked at\n", shared->looks);
	disconnect(&shared->connection);
	close_endpoint(&shared->endpoint);
}

void tearing_of_messages_that_arrive(void)
{
	struct shared shared;
	pthread_t thread;
	start(&shared);
	CHECK_EQ(pthread_create(&thread, NULL, look, &shared), 0);
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		shared.slot = slot;
		for (int i = 0; i < rounds(1) * KINDS; i++) {
			/* Not the alignment of the slot. */
			size_t from = STILL + slot % 3;
			memset(shared.endpoint.buffer + STILL, i % 2 ? 0 : 0xff, SLOT);
			move(&shared, i % KINDS, from, offset_of(slot), length_of(slot));
		}
	}
	end(&shared, thread);
}

void tearing_of_messages_that_are_sent(void)
{
	struct shared shared;
	pthread_t thread;
	start(&shared);
	CHECK_EQ(pthread_create(&thread, NULL, change, &shared), 0);
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		shared.slot = slot;
		for (int i = 0; i < rounds(1) * KINDS; i++) {
			size_t to = STILL + slot % 3;
			move(&shared, i % KINDS, offset_of(slot), to, length_of(slot));
			check_copy(&shared, slot, to);
		}
	}
	end(&shared, thread);
}

/* Loads the word that is written and added to, and the one that gets the old values. */
static void *look_at_halves(void *argument)
{
	struct shared *shared = argument;
	const uint64_t *words = (const uint64_t *)shared->endpoint.buffer;
	while (!shared->is_over)
		for (int i = 0; i < 2; i++) {
			uint64_t value = __atomic_load_n(&words[8 * i], __ATOMIC_ACQUIRE);
			CHECK_EQ((uint32_t)value, value >> 32);
			shared->looks++;
		}
	return NULL;
}

void tearing_beside_atomics(void)
{
	const uint64_t one = 1ull << 32 | 1;
	struct shared shared;
	pthread_t thread;
	start(&shared);
	struct endpoint *endpoint = &shared.endpoint;
	CHECK_EQ(pthread_create(&thread, NULL, look_at_halves, &shared), 0);
	for (int i = 0; i < rounds(1000); i++) {
		uint64_t value = (uint64_t)i * one;
		memcpy(endpoint->buffer + STILL, &value, sizeof(value));
		move(&shared, i % 2 ? WRITE : INLINE_WRITE, STILL, 0, sizeof(value));
		struct ibv_sge sge = {.addr = (uintptr_t)endpoint->buffer + 64,
				      .length = 8,
				      .lkey = endpoint->mr->lkey};
		struct ibv_send_wr request = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = i % 3 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.atomic = {.remote_addr = (uintptr_t)endpoint->buffer,
				      .rkey = endpoint->mr->rkey,
				      .compare_add = i % 3 ? one : value,
				      .swap = value + one},
		};
		struct ibv_send_wr *refused;
		CHECK_EQ(ibv_post_send(shared.connection.left, &request, &refused), 0);
		CHECK_EQ(next_completion(endpoint->cq).status, IBV_WC_SUCCESS);
		CHECK(load(endpoint->buffer, 8) == value + one);
		CHECK(load(endpoint->buffer + 64, 8) == value);
	}
	end(&shared, thread);
}
