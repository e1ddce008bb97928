/*
 * call_sequences: executes calls of libibverbs and librdmacm that a seed decides, and prints every result
 * in a form that does not depend on the device. See main.c.
 */
#ifndef SEQUENCES_H
#define SEQUENCES_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>

#define PDS 3
#define REGIONS 6
#define WINDOWS 2
#define CHANNELS 2
#define CQS 4
#define SRQS 2
#define PAIRS 5
#define HANDLES 3
#define IDS 6

/* Sent bytes, receives, what peers reach, and results are apart: overlapping copies have no defined result. */
#define RECEIVED_AT 32768u
#define REACHED_AT 40960u
#define RESULTS_AT 65536u
#define BUFFER 98304u
#define QKEY 0x11111111u

/* --- random numbers: random.c --- */
void random_start(uint64_t seed, uint32_t step);
uint32_t pick(uint32_t count); /* 0 to count - 1 */
int chance(uint32_t percent);
/* One of these values. */
#define ONE_OF(...) ((const uint32_t[]){ __VA_ARGS__ }[pick(sizeof((const uint32_t[]){ __VA_ARGS__ }) / 4)])

/* A number beside a limit of the device, and its name, which is the same for every device. */
struct boundary {
	uint64_t value;
	const char *name;
};
struct boundary boundary_at(uint64_t limit, uint64_t usual);
/* The same without the limit itself: queues of that length take a gigabyte. */
struct boundary boundary_above(uint64_t limit, uint64_t usual);

/* --- lines of output: print.c --- */
void call(const char *name);                                  /* begins a line */
void arg(const char *format, ...) __attribute__((format(printf, 1, 2)));
void result_pointer(const void *pointer);                     /* pointer, or NULL with errno */
void result_code(int code);                                   /* 0, an errno, or -1 with errno */
void result_text(const char *text);
void out(const char *format, ...) __attribute__((format(printf, 1, 2)));
void end_call(void);
void note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a whole line */
const char *errno_name(int code);
const char *named(char kind, uint64_t value);                 /* a number's name in order of appearance */
const char *relation(uint64_t got, uint64_t asked);           /* "enough" or "less" */

/* --- objects: objects.c --- */
struct region {
	struct ibv_mr *mr;
	uint8_t *memory;
	int pd;
	uint32_t access;
	uint32_t printed_sum;
};
struct queue {
	struct ibv_cq *cq;
	uint32_t events, acknowledged;
	int is_small; /* it was asked for fewer places than requests may complete */
};
struct pair {
	struct ibv_qp *qp;
	enum ibv_qp_type type;
	int srq, peer;
	int signals_all;
	int waiting; /* signaled requests without a completion */
	int unsignaled; /* others were posted just now */
	int is_asked_in_vain; /* a peer may have sent it what has no place at the peer */
	int hears_another;    /* a sender of another sequence has posted to it */
	int hears_long;       /* a message of several packets has been posted to it */
	int is_failed;        /* a send has completed in error since it was brought up */
	uint32_t session;     /* the same for two that were brought up for one another */
	uint32_t serial, max_send, max_receive, inline_max, send_pieces, receive_pieces, asked_pieces,
		asked_inline;
	enum ibv_qp_state state;
	uint64_t receives[64]; /* addresses by serial number */
};
struct identifier {
	struct rdma_cm_id *id;
	int has_qp, is_waiting, is_to_loopback, is_from_loopback;
	struct rdma_ud_param datagrams; /* where the peer takes them, once it is established */
};
struct table {
	struct ibv_context *context;
	struct ibv_device_attr limits;
	union ibv_gid gid;
	int gid_index;
	struct ibv_pd *pds[PDS];
	struct region regions[REGIONS];
	struct ibv_mw *windows[WINDOWS];
	struct ibv_comp_channel *channels[CHANNELS];
	struct queue queues[CQS];
	struct ibv_srq *srqs[SRQS];
	uint32_t srq_serial, sessions;
	uint64_t srq_receives[64];
	struct pair pairs[PAIRS];
	struct ibv_ah *handles[HANDLES];
	struct rdma_event_channel *cm;
	struct identifier ids[IDS];
	uint32_t first_port; /* of four */
	int pending_ms;      /* an answer of rdma_cm may be under way for so long; with two ends, 0 or not */
	int has_failed;      /* the last call with a code */
	/* With two ends: see ends.c. */
	char end;                    /* 'a' or 'b'; 0 without */
	struct in_addr peer_address; /* the other end's */
	uint32_t peer_port;          /* the first of its four */
	uint32_t patience;
	int newest_request;          /* the place of the last request that came, or -1 */
	uint32_t made_up;            /* numbers of queue pairs that are none */
	int has_timeout;             /* a program's own timeout may end transfers */
};
extern struct table t;

/* A live object's index, or -1 where there is none. */
int some_pd(void), some_region(void), some_window(void), some_channel(void), some_queue(void);
int some_srq(void), some_pair(void), some_handle(void), some_id(void);
/* A free place, or -1. */
int free_pd(void), free_region(void), free_window(void), free_channel(void), free_queue(void);
int free_srq(void), free_pair(void), free_handle(void), free_id(void);
int open_device(const char *name); /* 0, or -1 with a line of output */
const char *index_name(char kind, int index); /* "q1", or "-" */
void set_address_handle(struct ibv_ah_attr *attributes);

/* --- calls, each a function without arguments; the first line of each draws its arguments --- */
struct step {
	void (*run)(void);
	unsigned weight;
};
extern const struct step device_steps[], memory_steps[], queue_steps[], pair_steps[], work_steps[];
extern const struct step cm_steps[], settle_steps[];

void prepare_verbs(void); /* objects that most sequences need */
void prepare_connections(void);
void settle(void);        /* waits until the device is quiet, and prints what it did */
void settle_connections(void);
void bring_up(int index, int peer); /* in the session t.sessions */
void post_flushed(int place); /* a receive and a send to a queue pair in error */
int take_connection_event(int wait_ms); /* 1 if one came that is printed */
void print_connection_events(void);
struct sockaddr *address(uint32_t form, uint32_t port);
int make_qp(int place);   /* of an identifier */
int is_slow_to_end(int place);
struct rdma_conn_param parameters(void);
const struct step *some_step(const struct step *const *lists, size_t count);
void note_files(void);    /* what programs read below /sys */
uint32_t sum_of(const uint8_t *bytes, size_t len);


/* --- two ends, each a process of its own: lockstep.c, ends.c --- */
struct message {
	uint32_t turn; /* both ends are in the same */
	uint32_t has;
	uint64_t values[4];
};
int meet(uint64_t seed);                       /* 0, or -1 with a line of output */
struct message tell(struct message mine); /* gives each end what the other one said */
void settle_ends(void);                        /* waits until both are quiet; prints this end's events */
void two_ends(uint64_t seed, uint32_t calls);

#endif
