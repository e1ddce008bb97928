#include "striped.h"

#include <stdio.h>

#include "check.h"

/* The messages of a rail. */
struct lane {
	struct rail *rail;
	/* Of each slot of the window the message on its way, from 1; 0 without one. */
	uint64_t slots[WINDOW];
	uint64_t completed;
	unsigned long long next_try;
};

struct sender {
	int socket;
	struct lane lanes[MAX_RAILS];
	uint64_t next;
	/* Messages of rails that failed. */
	uint64_t again[MAX_RAILS * WINDOW];
	int waiting;
	unsigned failures, returns;
	unsigned long long last, standstill;
};

static void post(struct lane *lane, int slot, uint64_t number)
{
	struct rail *rail = lane->rail;
	unsigned char *message = rail->end.buffer + slot * MESSAGE;
	memcpy(message, &number, sizeof number);
	fill(message + sizeof number, MESSAGE - sizeof number, (unsigned)number);
	CHECK_EQ(post_send(rail->qp, &rail->end, slot * MESSAGE, MESSAGE, slot), 0);
	lane->slots[slot] = number;
}

/* Gives up a rail: what it had on its way goes to the others. */
static void fail(struct sender *sender, struct lane *lane)
{
	for (int slot = 0; slot < WINDOW; slot++) {
		if (lane->slots[slot])
			sender->again[sender->waiting++] = lane->slots[slot];
		lane->slots[slot] = 0;
	}
	CHECK_EQ(ibv_destroy_qp(lane->rail->qp), 0);
	lane->rail->qp = NULL;
	sender->failures++;
}

static void poll_lane(struct sender *sender, struct lane *lane)
{
	struct ibv_wc wc[WINDOW];
	int count = ibv_poll_cq(lane->rail->end.cq, WINDOW, wc);
	CHECK(count >= 0);
	for (int i = 0; i < count; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fail(sender, lane);
			return;
		}
		lane->slots[wc[i].wr_id] = 0;
		lane->completed++;
		unsigned long long time = now();
		if (sender->last && time - sender->last > sender->standstill)
			sender->standstill = time - sender->last;
		sender->last = time;
	}
}

/* Connects a rail whose port is active, at most ten times a second. */
static void connect_lane(struct sender *sender, struct lane *lane, bool is_first)
{
	unsigned long long time = now();
	if (time < lane->next_try)
		return;
	lane->next_try = time + 100000000;
	if (!is_active(lane->rail))
		return;
	renew(lane->rail);
	struct word word = word_of(lane->rail);
	tell(sender->socket, &word);
	word = hear(sender->socket);
	CHECK_EQ(word.rail, lane->rail->number);
	join(lane->rail, &word);
	if (lane->rail->qp && !is_first)
		sender->returns++;
}

/* Posts what the windows of a rail allow. Returns true if nothing is on its way. */
static bool drive(struct sender *sender, struct lane *lane, bool is_over)
{
	bool is_idle = true;
	if (!lane->rail->qp)
		connect_lane(sender, lane, false);
	for (int slot = 0; slot < WINDOW && lane->rail->qp; slot++) {
		if (lane->slots[slot] == 0 && sender->waiting > 0)
			post(lane, slot, sender->again[--sender->waiting]);
		else if (lane->slots[slot] == 0 && !is_over)
			post(lane, slot, sender->next++);
		is_idle &= lane->slots[slot] == 0;
	}
	if (lane->rail->qp)
		poll_lane(sender, lane);
	return is_idle;
}

void send_all(int socket, struct rail *rails, int count, unsigned milliseconds)
{
	struct sender sender = {.socket = socket, .next = 1};
	for (int i = 0; i < count; i++) {
		sender.lanes[i].rail = &rails[i];
		connect_lane(&sender, &sender.lanes[i], true);
	}
	unsigned long long end = now() + milliseconds * 1000000ull;
	bool is_idle = false;
	while (!is_idle || sender.waiting > 0) {
		bool is_over = now() >= end;
		is_idle = is_over;
		for (int i = 0; i < count; i++)
			is_idle &= drive(&sender, &sender.lanes[i], is_over);
	}
	struct word done = {.kind = DONE, .total = sender.next - 1};
	tell(socket, &done);
	printf("sent %llu messages,", (unsigned long long)done.total);
	for (int i = 0; i < count; i++)
		printf(" %llu on rail %d,", (unsigned long long)sender.lanes[i].completed, i);
	printf(" rails failed %u times and came back %u times, standstill %llu ms\n", sender.failures,
	       sender.returns, sender.standstill / 1000000);
}
