/* Memory runs out while a program connects by rdma_cm. */
#include <arpa/inet.h>
#include <string.h>

#include <rdma/rdma_cma.h>

#include "check.h"
#include "endpoint.h"
#include "exhausted.h"

enum { STEP = 8, FIRST_PORT = 7600, PATIENCE_MS = 10000, MAX_GROWTH = 256, CLEAN = 16 };

static unsigned asked;

/* Takes the next event, which may have a reason for failure. Returns it, or -1 if there was no memory. */
static int take_event(struct rdma_event_channel *channel, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	if (rdma_get_cm_event(channel, &event)) {
		CHECK_EQ(errno, ENOMEM);
		return -1;
	}
	int kind = event->event;
	*id = event->id;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	return kind;
}

/* Returns true if a call of librdmacm succeeded; false if memory was the reason that it did not. */
static bool is_done(int result)
{
	if (result)
		CHECK_EQ(errno, ENOMEM);
	return result == 0;
}

/* Listens and asks the own host's listener for a connection, as far as there is memory, up to the answer. */
static bool ask(struct sockaddr_in *address)
{
	/* A request of an identifier that is gone may come yet. */
	address->sin_port = htons(FIRST_PORT + ++asked % 1000);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	if (!is_made(channel))
		return false;
	struct rdma_cm_id *listener = NULL, *client = NULL, *server = NULL, *told;
	struct sockaddr *at = (struct sockaddr *)address;
	bool is_whole = is_done(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP)) &&
			is_done(rdma_bind_addr(listener, at)) && is_done(rdma_listen(listener, 4)) &&
			is_done(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP)) &&
			is_done(rdma_resolve_addr(client, NULL, at, PATIENCE_MS)) &&
			take_event(channel, &told) == RDMA_CM_EVENT_ADDR_RESOLVED &&
			is_done(rdma_resolve_route(client, PATIENCE_MS)) &&
			take_event(channel, &told) == RDMA_CM_EVENT_ROUTE_RESOLVED;
	if (is_whole) {
		struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
		struct rdma_conn_param parameters = {0};
		is_whole = is_done(rdma_create_qp(client, NULL, &init)) &&
			   is_done(rdma_connect(client, &parameters)) &&
			   take_event(channel, &told) == RDMA_CM_EVENT_CONNECT_REQUEST;
		if (is_whole) {
			server = told;
			is_whole = is_done(rdma_reject(server, NULL, 0)) &&
				   take_event(channel, &told) == RDMA_CM_EVENT_REJECTED;
		}
		if (client->qp)
			rdma_destroy_qp(client);
	}
	struct rdma_cm_id *ids[] = {server, client, listener};
	for (int i = 0; i < 3; i++)
		CHECK(!ids[i] || !rdma_destroy_id(ids[i]));
	rdma_destroy_event_channel(channel);
	return is_whole;
}

void failing_allocations_of_identifiers(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 16);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(FIRST_PORT)};
	memcpy(&address.sin_addr, endpoint.gid.raw + 12, 4);
	CHECK(ask(&address));
	long first = live_allocations();
	for (int i = 0; i < CLEAN; i++)
		CHECK(ask(&address));
	/* An answer is kept for a while, in case the peer asks again. */
	long live = live_allocations(), kept = live - first, before = asked;
	for (int is_lasting = 0; is_lasting < 2; is_lasting++) {
		bool has_failed = true;
		for (long n = 0; has_failed; n += 1 + n / STEP) {
			fail_allocations_from(n, is_lasting);
			bool is_whole = ask(&address);
			has_failed = stop_failing();
			CHECK(has_failed || is_whole);
			CHECK(ask(&address));
		}
	}
	CHECK(live_allocations() <= live + kept * (asked - before) / CLEAN + MAX_GROWTH);
	close_endpoint(&endpoint);
}
