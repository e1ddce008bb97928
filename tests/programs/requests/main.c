/* Requests of rdma_cm that end before they are accepted, and the answers to them: as with the kernel. The
 * variable ADDRESS is that of the device; both ends are in this process, each with a channel. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>

#include <rdma/rdma_cma.h>

#include "check.h"

enum { PORT = 7001, KNOWN_MS = 2000, PATIENCE_MS = 10000 };

struct ends {
	struct rdma_event_channel *passive, *active;
	struct rdma_cm_id *listener, *client;
};

static struct sockaddr *address(int port)
{
	static struct sockaddr_in it;
	const char *text = getenv("ADDRESS");
	it = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
	CHECK_EQ(inet_pton(AF_INET, text ? text : "10.1.0.1", &it.sin_addr), 1);
	return (struct sockaddr *)&it;
}

static bool has_event(struct rdma_event_channel *channel, int wait_ms)
{
	struct pollfd set = {.fd = channel->fd, .events = POLLIN};
	return poll(&set, 1, wait_ms) == 1;
}

static struct rdma_cm_event *event_of(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(has_event(channel, PATIENCE_MS));
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	CHECK_EQ(event->event, type);
	return event;
}

/* Acknowledges the next event, and returns its identifier. */
static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = event_of(channel, type);
	struct rdma_cm_id *id = event->id;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	return id;
}

/* A listener, and a client that asks it. */
static struct ends begin(enum rdma_port_space space)
{
	struct ends it = {rdma_create_event_channel(), rdma_create_event_channel(), NULL, NULL};
	struct rdma_conn_param asked = {.responder_resources = 1, .initiator_depth = 1, .qp_num = 77};
	CHECK(it.passive && it.active);
	CHECK_EQ(rdma_create_id(it.passive, &it.listener, NULL, space), 0);
	CHECK_EQ(rdma_bind_addr(it.listener, address(PORT)), 0);
	CHECK_EQ(rdma_listen(it.listener, 4), 0);
	CHECK_EQ(rdma_create_id(it.active, &it.client, NULL, space), 0);
	CHECK_EQ(rdma_resolve_addr(it.client, NULL, address(PORT), 2000), 0);
	expect(it.active, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_EQ(rdma_resolve_route(it.client, 2000), 0);
	expect(it.active, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK_EQ(rdma_connect(it.client, &asked), 0);
	return it;
}

/* Before a request is accepted its identifier has no events: the kernel does not know then what they would carry. */
static void end_before_it_is_accepted(void)
{
	struct ends it = begin(RDMA_PS_TCP);
	struct rdma_conn_param answer = {.qp_num = 78};
	struct rdma_cm_id *request = expect(it.passive, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK_EQ(rdma_destroy_id(it.client), 0);
	/* By then the library knows that the peer has given up, on a busy machine, too. */
	CHECK(!has_event(it.passive, KNOWN_MS));
	CHECK_MINUS_ONE(rdma_accept(request, &answer), EINVAL);
	CHECK(!has_event(it.passive, 0));
	CHECK_EQ(rdma_destroy_id(request), 0);
}

/* A request that was accepted has them. */
static void end_after_it_is_accepted(void)
{
	struct ends it = begin(RDMA_PS_TCP);
	struct rdma_conn_param answer = {.qp_num = 78};
	struct rdma_cm_id *request = expect(it.passive, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK_EQ(rdma_accept(request, &answer), 0);
	expect(it.active, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK_EQ(rdma_reject(it.client, NULL, 0), 0);
	CHECK(expect(it.passive, RDMA_CM_EVENT_REJECTED) == request);
}

/* A refused datagram service says so with the bytes of the peer's program. */
static void refused_datagrams(void)
{
	struct ends it = begin(RDMA_PS_UDP);
	struct rdma_cm_id *request = expect(it.passive, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK_EQ(rdma_reject(request, "not here", 8), 0);
	struct rdma_cm_event *event = event_of(it.active, RDMA_CM_EVENT_UNREACHABLE);
	CHECK(event->status > 0);
	CHECK_EQ(event->param.ud.private_data_len, 136);
	CHECK(!memcmp(event->param.ud.private_data, "not here", 8));
	CHECK_EQ(rdma_ack_cm_event(event), 0);
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{"end-before-it-is-accepted", end_before_it_is_accepted},
		{"end-after-it-is-accepted", end_after_it_is_accepted},
		{"refused-datagrams", refused_datagrams},
	};
	return run_scenario(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
