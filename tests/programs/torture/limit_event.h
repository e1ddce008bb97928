/* A connection whose shared receive queue reports that it is nearly empty: an asynchronous event
 * that a program can cause at any time. */
#ifndef LIMIT_EVENT_H
#define LIMIT_EVENT_H

#include "endpoint.h"

struct limited {
	struct endpoint *endpoint;
	struct ibv_srq *srq;
	struct connection connection;
};

/* Makes a shared receive queue and two connected queue pairs that receive from it. */
void make_limited(struct limited *limited, struct endpoint *endpoint);
void destroy_limited(struct limited *limited);

/* Causes one IBV_EVENT_SRQ_LIMIT_REACHED, by a message that it sends and receives. */
void cause_limit_event(struct limited *limited);

/* Checks that an event is one of this queue, and acknowledges it. */
void acknowledge_limit_event(struct limited *limited, struct ibv_async_event *event);

#endif
