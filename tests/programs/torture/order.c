/* Destroying objects that others use, or whose events are not acknowledged. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "check.h"
#include "endpoint.h"
#include "limit_event.h"
#include "torture.h"

void wrong_order(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 64);
	CHECK_CODE(ibv_dealloc_pd(endpoint.pd), EBUSY);
	CHECK_CODE(ibv_destroy_comp_channel(endpoint.channel), EBUSY);
	struct connection connection = connect_to_self(&endpoint, 16);
	CHECK_CODE(ibv_destroy_cq(endpoint.cq), EBUSY);
	CHECK_CODE(ibv_dealloc_pd(endpoint.pd), EBUSY);

	struct limited limited;
	make_limited(&limited, &endpoint);
	CHECK_CODE(ibv_destroy_srq(limited.srq), EBUSY);

	struct ibv_pd *pd = ibv_alloc_pd(endpoint.context);
	CHECK(pd);
	struct ibv_ah_attr attributes = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = endpoint.gid, .sgid_index = endpoint.gid_index, .hop_limit = 1},
	};
	struct ibv_ah *ah = ibv_create_ah(pd, &attributes);
	CHECK(ah);
	CHECK_CODE(ibv_dealloc_pd(pd), EBUSY);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);

	/* What was refused has changed nothing. */
	transfer(&endpoint, &connection, 4096, 1);
	cause_limit_event(&limited);
	disconnect(&connection);
	destroy_limited(&limited);
	close_endpoint(&endpoint);
}

/* Something that is destroyed in a thread of its own. */
struct destruction {
	void (*destroy)(void *);
	void *object;
	atomic_bool has_ended;
};

static void *destroy(void *argument)
{
	struct destruction *destruction = argument;
	destruction->destroy(destruction->object);
	destruction->has_ended = true;
	return NULL;
}

/* Destroys in a thread, and calls `acknowledge` after a while, before which that must not end. */
static void destroy_before(struct destruction *destruction, void (*acknowledge)(void *),
			   void *events)
{
	pthread_t thread;
	struct timespec while_ = {.tv_nsec = 100000000};
	CHECK_EQ(pthread_create(&thread, NULL, destroy, destruction), 0);
	nanosleep(&while_, NULL);
	CHECK(!destruction->has_ended);
	acknowledge(events);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(destruction->has_ended);
}

static void destroy_cq(void *cq)
{
	CHECK_EQ(ibv_destroy_cq(cq), 0);
}

static void acknowledge_two_events(void *cq)
{
	ibv_ack_cq_events(cq, 2);
}

void unacknowledged_completion_event(void)
{
	struct endpoint endpoint;
	struct ibv_cq *cq;
	void *context;
	open_endpoint(&endpoint, 3 * 4096, 64);
	struct connection connection = connect_to_self(&endpoint, 16);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(ibv_req_notify_cq(endpoint.cq, 0), 0);
		transfer(&endpoint, &connection, 4096, i);
		CHECK_EQ(ibv_get_cq_event(endpoint.channel, &cq, &context), 0);
		CHECK(cq == endpoint.cq && context == &endpoint);
	}
	disconnect(&connection);
	struct destruction destruction = {.destroy = destroy_cq, .object = endpoint.cq};
	destroy_before(&destruction, acknowledge_two_events, endpoint.cq);
	endpoint.cq = ibv_create_cq(endpoint.context, 1, NULL, NULL, 0);
	CHECK(endpoint.cq);
	close_endpoint(&endpoint);
}

static void destroy_srq(void *srq)
{
	CHECK_EQ(ibv_destroy_srq(srq), 0);
}

static void acknowledge_event(void *event)
{
	ibv_ack_async_event(event);
}

void unacknowledged_event(void)
{
	struct endpoint endpoint;
	struct limited limited;
	struct ibv_async_event event;
	open_endpoint(&endpoint, 3 * 4096, 64);
	make_limited(&limited, &endpoint);
	cause_limit_event(&limited);
	CHECK_EQ(get_object_event(endpoint.context, &event), 0);
	CHECK_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	disconnect(&limited.connection);
	struct destruction destruction = {.destroy = destroy_srq, .object = limited.srq};
	destroy_before(&destruction, acknowledge_event, &event);
	close_endpoint(&endpoint);
}
