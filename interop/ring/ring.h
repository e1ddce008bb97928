/*
 * What the parts of ring_allreduce share. A function that cannot go on ends the program with one
 * line on standard error and a status that says whose fault it was.
 */
#ifndef RING_H
#define RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

enum status { WRONG_RESULT = 1, USAGE = 2, OURS = 3, REFUSED = 4, RANK_FAILED = 5 };

extern unsigned self, ranks; /* which rank we are, of how many */

/* What the command line or the launcher's environment says. */
extern struct options {
	const char *root, *device, *type, *op, *placement;
	uint64_t rank, size, port, gid_index, traffic_class, timeout, retry, patience; /* seconds */
	uint64_t lanes, slots, slot_bytes, small_limit, split;
	uint64_t min, max, factor, step, iterations, warmup, check;
} options;

/* numbers.c: element types, operators, what ranks contribute, what they should end with */
enum op { SUM, PROD, MAX, MIN, AVG, OPS }; /* their codes in the protocol */
extern const char *const op_names[OPS];

struct type {
	const char *name;
	size_t size;
	int digits; /* binary digits of a float's fraction: whole numbers up to 2^digits are exact */
	void (*reduce)(enum op op, const void *left, const void *right, void *into, size_t n);
	void (*divide)(void *values, size_t n, unsigned by);
	void (*fill)(enum op op, unsigned rank, uint64_t first, void *values, size_t n);
	double (*value)(const void *values, uint64_t i);
	double (*expect)(int64_t total, unsigned by); /* the total divided, as this type holds it */
};

#define TYPES 10
extern const struct type types[TYPES]; /* in the order of their codes in the protocol */
uint64_t count_wrong(const struct type *type, enum op op, const void *result, uint64_t count);

/* bootstrap.c: lines of text to and from the bootstrap server, which is a part of rank 0; and failing */
__attribute__((noreturn, format(printf, 2, 3)))
void fail(enum status status, const char *format, ...);
__attribute__((noreturn)) void blame(unsigned neighbour, const char *reason);
void connect_to_hub(void);
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
const char *encode(const char *text);
char *hear(int patience_ms);
char *expect(const char *word);
bool find(const char *line, const char *key, char *value, size_t capacity);
uint64_t number(const char *line, const char *key);
extern int server_fd; /* its connection */
uint64_t now_ns(void);

/* pairs.c: per lane a queue pair to the next rank and one to the previous, and their memory */
#define MAX_LANES 64

struct message { uint32_t immediate, len; };

/* One end of a queue pair, and the DATA messages that go over it both ways. */
struct link {
	struct ibv_qp *qp;
	uint32_t psn;
	unsigned neighbour;  /* whose the other end is */
	unsigned unfinished; /* sends posted and not yet completed */
	/* To the neighbour: its slots, and their distance; how many messages it was sent and has
	 * consumed since the beginning, as far as we know; how many its last credit said, and how many
	 * it was sent before the operation under way. */
	uint64_t far_slots, far_pitch;
	uint32_t far_key, sent, credited, said, sent_before;
	/* From the neighbour: our slots; messages that arrived, were consumed, and are known there to
	 * be, since the beginning; and how many were consumed before the operation under way. */
	uint8_t *slots;
	uint64_t pitch;
	uint32_t arrived, consumed, reported, consumed_before;
	struct message *arrivals; /* the last ones that arrived, as many as slots */
};

/* What a rank writes to its previous one (all big-endian): where its output lies. */
struct record { uint64_t address, length; uint32_t key, zero; };

struct lane {
	struct link next, prev;
	/* How many windows the next rank announced and we used up; the last one, in our byte order. */
	uint64_t windows, windows_used;
	bool uses_window; /* in the operation under way */
	uint32_t window_tag;
	struct record window;
	/* The previous rank's record of our window. */
	uint64_t prev_record;
	uint32_t prev_record_key;
};

struct buffer { uint8_t *at; struct ibv_mr *mr; };

extern struct lane lanes[MAX_LANES];
extern struct buffer slots;   /* of all lanes: what neighbours write to */
extern struct buffer records; /* struct record: MAX_LANES that are written to us, MAX_LANES that we send */
extern struct ibv_cq *cq;
extern struct ibv_comp_channel *channel;
extern unsigned next_rank, prev_rank;

/* The identity of a work request: its lane, its side, and whether it is a receive. */
enum { RECEIVE = 1, TO_PREV = 2, LANE_SHIFT = 2 };

uint64_t work_id(const struct lane *lane, const struct link *link, unsigned flags);
unsigned send_depth(void);
struct buffer make_buffer(size_t bytes, int access);
void arm(struct lane *lane, struct link *link);
void join(void);

#endif
