/* Events of librdmacm: taken until none comes, and printed by identifier. */
#define _GNU_SOURCE
#include "sequences.h"

#include <poll.h>
#include <stdlib.h>

#define QUIET_MS 40

struct seen {
	int id;
	unsigned order;
	char text[160];
};

static int by_id(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;
	return x->id != y->id ? x->id - y->id : (int)x->order - (int)y->order;
}

static int index_of(const struct rdma_cm_id *id)
{
	for (int i = 0; i < IDS; i++)
		if (id && t.ids[i].id == id)
			return i;
	return -1;
}

static int take(struct seen *seen)
{
	struct rdma_cm_event *event;
	if (rdma_get_cm_event(t.cm, &event))
		return 0;
	struct rdma_cm_id *surplus = NULL;
	int place = index_of(event->id);
	const char *arrived = "";
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		place = free_id();
		arrived = " new";
		if (place < 0)
			surplus = event->id;
		else
			t.ids[place] = (struct identifier){ .id = event->id };
	}
	int has_data = event->event == RDMA_CM_EVENT_CONNECT_REQUEST || event->event == RDMA_CM_EVENT_ESTABLISHED;
	seen->id = place;
	snprintf(seen->text, sizeof seen->text, "event %s type=%u status=%d listener=%s%s data=%s resources=%u depth=%u",
		 index_name('i', place), event->event, event->status, index_name('i', index_of(event->listen_id)), arrived,
		 event->param.conn.private_data_len ? "some" : "none", has_data ? event->param.conn.responder_resources : 0,
		 has_data ? event->param.conn.initiator_depth : 0);
	rdma_ack_cm_event(event);
	if (surplus) {
		rdma_reject(surplus, NULL, 0);
		rdma_destroy_id(surplus);
	}
	return 1;
}

void settle_connections(void)
{
	struct seen seen[32];
	unsigned count = 0;
	struct pollfd asked = { .fd = t.cm->fd, .events = POLLIN };
	while (count < 32 && poll(&asked, 1, t.pending_ms ? t.pending_ms : QUIET_MS) == 1 && (asked.revents & POLLIN)) {
		seen[count].order = count;
		if (!take(&seen[count]))
			break;
		count++;
		t.pending_ms = 0;
	}
	t.pending_ms = 0;
	qsort(seen, count, sizeof *seen, by_id);
	for (unsigned i = 0; i < count; i++)
		note("%s", seen[i].text);
	asked.events = POLLIN | POLLOUT | POLLPRI;
	poll(&asked, 1, 0);
	note("descriptors cm=%s%s%s", asked.revents & POLLIN ? "i" : "", asked.revents & POLLOUT ? "o" : "",
	     asked.revents & ~(POLLIN | POLLOUT) ? "x" : "");
}
