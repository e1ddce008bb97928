/* What fails where memory runs out, and what does it. */
#ifndef EXHAUSTED_H
#define EXHAUSTED_H

#include <stdbool.h>

#include "endpoint.h"

/* --- allocator.c --- */

/* Lets the allocation of this number, counted from now on, fail, or with `is_lasting` all from it on. */
void fail_allocations_from(long number, bool is_lasting);
/* Lets none fail. Returns true if one has failed. */
bool stop_failing(void);

/* Returns how many allocations of the program and its libraries were not freed. */
long live_allocations(void);

/* Returns how often the calling thread has allocated or freed. */
long own_calls_of_allocator(void);

/* Lets the process map so many bytes more than it has, or with RLIM_INFINITY as many as there are. */
void limit_address_space(size_t more);

/* --- objects.c --- */

/* One of everything that a program makes on an open device. */
struct objects {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_mw *mw;
	struct ibv_qp *qps[2];
};

/* Makes as many objects as there is memory for; returns false if it ran out. */
bool make_objects(struct objects *made, struct ibv_context *context,
		  const struct endpoint *endpoint);
void destroy_objects(struct objects *made);
/* Sends messages both ways, with long inline data one way. Returns the number of posts that found no
 * memory. */
int exchange(struct objects *made, const struct endpoint *endpoint);
/* Returns true if a call made its object; false if memory was the reason that it did not. */
bool is_made(const void *object);

/* --- scenarios, by the file that they are in --- */

/* objects.c */
void failing_allocations(void);
void creations_without_memory(void);
void used_up_memory(void);

/* devices.c */
void devices_without_address_space(void);

/* exiting.c */
void exit_without_allocator(void);
void exit_with_device_of_handler(void);
void exit_with_the_last_thread(void);

/* traffic.c */
void traffic_without_memory(void);
void traffic_without_descriptors(void);

/* identifiers.c */
void failing_allocations_of_identifiers(void);

#endif
