/* Objects that are destroyed with events that were not fetched. */
#include <dirent.h>
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"
#include "events.h"

/* Makes a queue on the channel of an endpoint, with a report that waits. */
static struct ibv_cq *reporting_queue(struct endpoint *endpoint)
{
	struct endpoint other = *endpoint;
	other.cq = ibv_create_cq(endpoint->context, 16, endpoint, endpoint->channel, 0);
	CHECK(other.cq);
	struct ibv_qp *qp = make_qp(&other, 4);
	CHECK_EQ(to_init(qp), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(ibv_req_notify_cq(other.cq, 0), 0);
		CHECK_EQ(post_recv(qp, &other, 0, 64, i), 0);
		to_error(qp);
	}
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	return other.cq;
}

void destroyed_queue_leaves_nothing(void)
{
	struct endpoint endpoint;
	struct ibv_cq *found;
	void *context;
	open_endpoint(&endpoint, 4096, 16);
	make_non_blocking(endpoint.channel->fd);
	for (int i = 0; i < rounds(200); i++) {
		struct ibv_cq *cq = reporting_queue(&endpoint);
		CHECK(is_readable(endpoint.channel->fd));
		CHECK_EQ(ibv_destroy_cq(cq), 0);
		CHECK(!is_readable(endpoint.channel->fd));
		CHECK_MINUS_ONE(ibv_get_cq_event(endpoint.channel, &found, &context), EAGAIN);
	}
	close_endpoint(&endpoint);
}

void destroyed_queue_leaves_others(void)
{
	struct endpoint endpoint;
	struct ibv_cq *found;
	void *context;
	open_endpoint(&endpoint, 4096, 16);
	for (int i = 0; i < rounds(100); i++) {
		struct ibv_cq *one = reporting_queue(&endpoint), *other = reporting_queue(&endpoint);
		CHECK_EQ(ibv_destroy_cq(one), 0);
		/* On a blocking descriptor, as many times as it is readable. */
		int events = 0;
		for (; is_readable(endpoint.channel->fd); events++) {
			CHECK_EQ(ibv_get_cq_event(endpoint.channel, &found, &context), 0);
			CHECK(found == other && context == &endpoint);
		}
		CHECK(events >= 1);
		ibv_ack_cq_events(other, events);
		CHECK_EQ(ibv_destroy_cq(other), 0);
	}
	close_endpoint(&endpoint);
}

/* Takes the events of the port; a new address causes one at any time. */
static void pass_port_events(struct ibv_context *context)
{
	struct ibv_async_event event;
	CHECK_MINUS_ONE(get_object_event(context, &event), EAGAIN);
}

void destroyed_objects_leave_no_event(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 16);
	make_non_blocking(endpoint.context->async_fd);
	for (int i = 0; i < rounds(20); i++) {
		struct endpoint other = endpoint;
		other.cq = ibv_create_cq(endpoint.context, 4, NULL, NULL, 0);
		CHECK(other.cq);
		int room = other.cq->cqe;
		struct connection connection = connect_to_self(&other, room + 8);
		pass_port_events(endpoint.context);
		/* An overrun: an event of the queue and one of each queue pair. */
		for (int request = 0; request < room + 4; request++)
			CHECK_EQ(post_rdma(connection.left, &other, IBV_WR_RDMA_WRITE, 0, 64,
					   (uintptr_t)other.buffer + 4096, other.mr->rkey, request),
				 0);
		while (!is_readable(endpoint.context->async_fd))
			sched_yield();
		disconnect(&connection);
		CHECK_EQ(ibv_destroy_cq(other.cq), 0);
		pass_port_events(endpoint.context);
		CHECK(!is_readable(endpoint.context->async_fd));
	}
	close_endpoint(&endpoint);
}

/* Returns the number of descriptors of the process. */
static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	CHECK(folder);
	int count = 0;
	while (readdir(folder))
		count++;
	CHECK_EQ(closedir(folder), 0);
	return count;
}

/* Queues and channels that are gone hold no descriptor back, whether others are made afterwards or not. */
void destroyed_channels_leave_no_descriptor(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 64);
	struct connection connection = connect_to_self(&endpoint, 4);
	transfer(&endpoint, &connection, 64, 1);
	enum { COUNT = 20 };
	struct ibv_comp_channel *channels[COUNT];
	struct ibv_cq *queues[COUNT];
	int before = descriptors();
	for (int i = 0; i < COUNT; i++) {
		CHECK(channels[i] = ibv_create_comp_channel(endpoint.context));
		CHECK(queues[i] = ibv_create_cq(endpoint.context, 16, NULL, channels[i], 0));
	}
	CHECK(descriptors() >= before + COUNT);
	for (int i = 0; i < COUNT; i++) {
		CHECK_EQ(ibv_destroy_cq(queues[i]), 0);
		CHECK_EQ(ibv_destroy_comp_channel(channels[i]), 0);
	}
	/* A thread of the device may be at the last queue still. */
	for (int i = 0; i < 1000 && descriptors() != before; i++)
		usleep(10000);
	CHECK_EQ(descriptors(), before);
	disconnect(&connection);
	close_endpoint(&endpoint);
}
