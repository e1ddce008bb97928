/*
 * What the parts of rxe_agent share. A failing function replies with an `error` line itself and
 * returns -1 or NULL, so that each command gets exactly one reply.
 */
#ifndef AGENT_H
#define AGENT_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define MAX_OBJECTS 256
#define MAX_SGES 32
#define MAX_SRQ_SGES 16 /* rxe has at most 27 */
#define NAME_LEN 16

/* The Q_Key of every datagram. */
#define Q_KEY 0x11111111u

enum kind { NOTHING, REGION, QUEUE_PAIR, SHARED_QUEUE };

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
	struct ibv_ah *ah; /* where its datagrams go, and to which queue pair */
	uint32_t destination;
	int group_socket; /* keeps the interface in the multicast group of the queue pair */
	/* SHARED_QUEUE */
	struct ibv_srq *srq;
};

extern struct ibv_context *context;
extern struct ibv_pd *pd;
extern struct object objects[MAX_OBJECTS];

/* parse.c: replies, and the words of an command */
__attribute__((format(printf, 1, 2))) void ok(const char *format, ...);
__attribute__((format(printf, 2, 3))) int fail(int code, const char *format, ...);
const char *text(char **words, const char *key);
uint64_t number(char **words, const char *key, uint64_t otherwise);
extern int bad_number; /* set by number(), looked at once an command's words are read */
struct object *lookup(const char *name, enum kind kind);
struct object *find(const char *name, enum kind kind);
struct object *place(const char *name);

/* memory.c: regions, their bytes, and windows to them */
int inside(const struct object *region, uint64_t offset, uint64_t len);
int access_flags(const char *letters);
int release_region(struct object *region);
int command_mr(char **words);
int command_memory(char **words);
int command_lend(char **words);
int command_bind(char **words);
int command_invalidate(char **words);

/* pairs.c: queue pairs and shared receive queues */
void destroy_qp(struct object *pair);
int command_srq(char **words);
int command_qp(char **words);
int command_connect(char **words);
int command_state(char **words);
int command_error(char **words);
int command_group(char **words);

/* work.c: posting and completions */
int64_t now_ms(void);
int command_recv(char **words);
int command_post(char **words);
int command_wait(char **words);

#endif
