/* Messages that two processes stripe over several devices: one that fails hands its messages to the others, and comes
 * back when its port is active again. */
#ifndef STRIPED_H
#define STRIPED_H

#include <stdbool.h>
#include <stdint.h>

#include "endpoint.h"

enum {
	MAX_RAILS = 8,
	/* Messages that are on their way on one rail. */
	WINDOW = 16,
	/* Receives of one rail. */
	RECEIVES = 64,
	MESSAGE = 4096,
	/* About 17 ms, four times. */
	TIMEOUT = 12,
	RETRIES = 3,
};

/* A device with one queue pair. */
struct rail {
	int number;
	struct endpoint end;
	/* Null while the rail is given up. */
	struct ibv_qp *qp;
};

/* What the ends tell each other over TCP. */
struct word {
	enum { CONNECT, DONE } kind;
	int rail;
	uint32_t qpn;
	union ibv_gid gid;
	/* Messages in all. */
	uint64_t total;
};

/* Opens all devices; returns their number. */
int open_rails(struct rail rails[MAX_RAILS]);

/* Makes the queue pair of a rail, in place of the one that it has. */
void renew(struct rail *rail);

/* Connects it to that of the other end. */
void join(struct rail *rail, const struct word *other);

/* Returns what the other end needs for that. */
struct word word_of(const struct rail *rail);

bool is_active(const struct rail *rail);

void tell(int socket, const struct word *word);
struct word hear(int socket);

/* Sends for so many milliseconds, and prints what became of it. */
void send_all(int socket, struct rail *rails, int count, unsigned milliseconds);

/* Receives until the other end is done, and checks each message. */
void receive_all(int socket, struct rail *rails, int count);

#endif
