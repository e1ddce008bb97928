/* Events of librdmacm: taken until none comes, and printed by identifier. */
#define _GNU_SOURCE
#include "sequences.h"

#include <poll.h>
#include <stdlib.h>

#define QUIET_MS 40

#define MAX_SEEN 32

struct seen {
	int id;
	unsigned order;
	char text[192];
};
static struct seen seen[MAX_SEEN];
static unsigned seen_count;

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

/* What the other end said, as far as it depends on no place. */
static const char *data_of(const struct rdma_cm_event *event, int is_of_datagrams)
{
	static char text[64];
	if (!t.end) /* what a process gets that connects with itself is compared by its presence */
		return event->param.conn.private_data_len ? "some" : "none";
	/* Both kinds of parameters begin with it. */
	snprintf(text, sizeof text, "%u/%#x qkey=%#x", event->param.conn.private_data_len,
		 sum_of(event->param.conn.private_data, event->param.conn.private_data_len),
		 is_of_datagrams && event->event == RDMA_CM_EVENT_ESTABLISHED ? event->param.ud.qkey : 0);
	return text;
}

enum taken { FAILED, SKIPPED, TAKEN };

static enum taken take(struct seen *seen)
{
	struct rdma_cm_event *event;
	if (rdma_get_cm_event(t.cm, &event))
		return FAILED;
	if (event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
		/* It comes seconds later, between any two calls. */
		rdma_ack_cm_event(event);
		return SKIPPED;
	}
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
		t.newest_request = place;
	}
	if (place >= 0)
		t.ids[place].is_waiting = 0;
	int has_data = event->event == RDMA_CM_EVENT_CONNECT_REQUEST || event->event == RDMA_CM_EVENT_ESTABLISHED;
	int is_of_datagrams = event->id->ps == RDMA_PS_UDP;
	if (has_data && place >= 0 && is_of_datagrams)
		t.ids[place].datagrams = event->param.ud;
	seen->id = place;
	snprintf(seen->text, sizeof seen->text, "event %s type=%u status=%d listener=%s%s data=%s resources=%u depth=%u",
		 index_name('i', place), event->event, event->status, index_name('i', index_of(event->listen_id)), arrived,
		 data_of(event, is_of_datagrams), has_data ? event->param.conn.responder_resources : 0,
		 has_data ? event->param.conn.initiator_depth : 0);
	rdma_ack_cm_event(event);
	if (surplus) {
		rdma_reject(surplus, NULL, 0);
		rdma_destroy_id(surplus);
	}
	return TAKEN;
}

int take_connection_event(int wait_ms)
{
	enum taken taken = SKIPPED;
	while (taken == SKIPPED) {
		struct pollfd asked = { .fd = t.cm->fd, .events = POLLIN };
		if (seen_count == MAX_SEEN || poll(&asked, 1, wait_ms) != 1 || !(asked.revents & POLLIN))
			return 0;
		seen[seen_count].order = seen_count;
		taken = take(&seen[seen_count]);
	}
	seen_count += taken == TAKEN;
	return taken == TAKEN;
}

void print_connection_events(void)
{
	qsort(seen, seen_count, sizeof *seen, by_id);
	for (unsigned i = 0; i < seen_count; i++)
		note("%s", seen[i].text);
	seen_count = 0;
}

void settle_connections(void)
{
	if (t.end) /* the ends settle together, when the turn is over */
		return;
	while (take_connection_event(t.pending_ms ? t.pending_ms : QUIET_MS))
		t.pending_ms = 0;
	t.pending_ms = 0;
	print_connection_events();
	struct pollfd asked = { .fd = t.cm->fd, .events = POLLIN | POLLOUT | POLLPRI };
	poll(&asked, 1, 0);
	note("descriptors cm=%s%s%s", asked.revents & POLLIN ? "i" : "", asked.revents & POLLOUT ? "o" : "",
	     asked.revents & ~(POLLIN | POLLOUT) ? "x" : "");
}
