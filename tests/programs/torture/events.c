/* Asynchronous events. */
#include <fcntl.h>
#include <stdint.h>

#include "check.h"
#include "endpoint.h"
#include "limit_event.h"
#include "torture.h"

/* Checks that no object of a context has an event. */
static void check_no_event(struct ibv_context *context)
{
	struct ibv_async_event event;
	int flags = fcntl(context->async_fd, F_GETFL);
	CHECK_EQ(fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK), 0);
	CHECK_MINUS_ONE(get_object_event(context, &event), EAGAIN);
	CHECK_EQ(fcntl(context->async_fd, F_SETFL, flags), 0);
}

void events_of_two_contexts(void)
{
	struct endpoint endpoints[2];
	struct limited limited[2];
	struct ibv_async_event event;
	for (int i = 0; i < 2; i++) {
		open_endpoint(&endpoints[i], 4096, 64);
		make_limited(&limited[i], &endpoints[i]);
	}
	for (int i = 0; i < 10; i++) {
		int one = i % 2, other = 1 - one;
		cause_limit_event(&limited[one]);
		CHECK_EQ(get_object_event(endpoints[one].context, &event), 0);
		acknowledge_limit_event(&limited[one], &event);
		check_no_event(endpoints[one].context);
		check_no_event(endpoints[other].context);
	}
	/* An event that the program does not fetch goes with its object. */
	cause_limit_event(&limited[0]);
	destroy_limited(&limited[0]);
	check_no_event(endpoints[0].context);
	destroy_limited(&limited[1]);
	for (int i = 0; i < 2; i++)
		close_endpoint(&endpoints[i]);
}

void events_of_a_full_completion_queue(void)
{
	struct endpoint endpoint;
	struct ibv_async_event event;
	struct ibv_wc completion;
	open_endpoint(&endpoint, 3 * 4096, 4);
	int room = endpoint.cq->cqe;
	struct connection connection = connect_to_self(&endpoint, room + 8);
	for (int i = 0; i < room + 4; i++)
		CHECK_EQ(post_rdma(connection.left, &endpoint, IBV_WR_RDMA_WRITE, 0, 64,
				   (uintptr_t)endpoint.buffer + 4096, endpoint.mr->rkey, i),
			 0);
	CHECK_EQ(get_object_event(endpoint.context, &event), 0);
	CHECK_EQ(event.event_type, IBV_EVENT_CQ_ERR);
	CHECK(event.element.cq == endpoint.cq);
	ibv_ack_async_event(&event);
	/* What was in the queue may be polled or lost; no call hangs or ends the process. */
	while (ibv_poll_cq(endpoint.cq, 1, &completion) > 0)
		;
	disconnect(&connection);
	check_no_event(endpoint.context);
	close_endpoint(&endpoint);
}
