/* Calls on completion channels, completion queues and shared receive queues. */
#define _GNU_SOURCE
#include "sequences.h"

#include <poll.h>
#include <string.h>

/* Requests that may complete before the queue is polled, and more. */
#define SMALL 64

static void create_comp_channel(void)
{
	int place = free_channel();
	call("ibv_create_comp_channel");
	arg("place=%s", index_name('h', place));
	if (place >= 0) {
		t.channels[place] = ibv_create_comp_channel(t.context);
		result_pointer(t.channels[place]);
		if (t.channels[place])
			out("context=%d refcnt=%d", t.channels[place]->context == t.context, t.channels[place]->refcnt);
	}
	end_call();
}

static void destroy_comp_channel(void)
{
	int place = some_channel();
	call("ibv_destroy_comp_channel");
	arg("channel=%s", index_name('h', place));
	if (place >= 0) {
		int code = ibv_destroy_comp_channel(t.channels[place]);
		result_code(code);
		if (!code)
			t.channels[place] = NULL;
	}
	end_call();
}

static void create_cq(void)
{
	int place = free_queue(), channel = chance(60) ? some_channel() : -1;
	struct boundary cqe = boundary_at((uint32_t)t.limits.max_cqe, 64);
	uint32_t vector = chance(85) ? 0 : ONE_OF(1, 1000, UINT32_MAX);
	call("ibv_create_cq");
	arg("place=%s channel=%s cqe=%s vector=%u", index_name('c', place), index_name('h', channel), cqe.name, vector);
	if (vector && (int)vector < t.context->num_comp_vectors)
		vector = 0;
	if (place >= 0) {
		struct queue *queue = &t.queues[place];
		*queue = (struct queue){ .is_small = cqe.value < SMALL };
		queue->cq = ibv_create_cq(t.context, (int)cqe.value, queue, channel < 0 ? NULL : t.channels[channel],
					  (int)vector);
		result_pointer(queue->cq);
		if (queue->cq)
			out("cqe=%s context=%d channel=%d", relation((uint64_t)queue->cq->cqe, cqe.value),
			    queue->cq->cq_context == queue,
			    queue->cq->channel == (channel < 0 ? NULL : t.channels[channel]));
	}
	end_call();
}

static void acknowledge(struct queue *queue)
{
	if (queue->events > queue->acknowledged) {
		ibv_ack_cq_events(queue->cq, queue->events - queue->acknowledged);
		queue->acknowledged = queue->events;
	}
}

static void destroy_cq(void)
{
	int place = some_queue();
	call("ibv_destroy_cq");
	arg("cq=%s", index_name('c', place));
	if (place >= 0) {
		acknowledge(&t.queues[place]); /* else it waits for ever */
		int code = ibv_destroy_cq(t.queues[place].cq);
		result_code(code);
		if (!code)
			t.queues[place].cq = NULL;
	}
	end_call();
}

static void resize_cq(void)
{
	int place = some_queue();
	struct boundary cqe = boundary_at((uint32_t)t.limits.max_cqe, 128);
	call("ibv_resize_cq");
	arg("cq=%s cqe=%s", index_name('c', place), cqe.name);
	if (place >= 0) {
		int code = ibv_resize_cq(t.queues[place].cq, (int)cqe.value);
		result_code(code);
		if (!code) {
			t.queues[place].is_small = cqe.value < SMALL;
			out("cqe=%s", relation((uint64_t)t.queues[place].cq->cqe, cqe.value));
		}
	}
	end_call();
}

static void req_notify_cq(void)
{
	int place = some_queue();
	uint32_t solicited = pick(2);
	call("ibv_req_notify_cq");
	arg("cq=%s solicited=%u", index_name('c', place), solicited);
	if (place >= 0)
		result_code(ibv_req_notify_cq(t.queues[place].cq, (int)solicited));
	end_call();
}

static int is_readable(int descriptor)
{
	struct pollfd asked = { .fd = descriptor, .events = POLLIN };
	return poll(&asked, 1, 20) == 1 && (asked.revents & POLLIN);
}

static void get_cq_event(void)
{
	int place = some_channel();
	uint32_t acknowledges = pick(2);
	call("ibv_get_cq_event");
	arg("channel=%s ack=%u", index_name('h', place), acknowledges);
	if (place >= 0 && is_readable(t.channels[place]->fd)) {
		struct ibv_cq *cq = NULL;
		void *context = NULL;
		result_code(ibv_get_cq_event(t.channels[place], &cq, &context));
		for (int i = 0; i < CQS; i++) {
			struct queue *queue = &t.queues[i];
			if (!cq || queue->cq != cq)
				continue;
			queue->events++;
			out("cq=%s context=%d", index_name('c', i), context == queue);
			if (acknowledges)
				acknowledge(queue);
		}
	} else {
		result_text("nothing");
	}
	end_call();
}

static void create_srq(void)
{
	int place = free_srq(), pd = some_pd();
	struct boundary max_wr = boundary_above((uint32_t)t.limits.max_srq_wr, 16);
	struct boundary max_sge = boundary_at((uint32_t)t.limits.max_srq_sge, 2);
	struct ibv_srq_init_attr attributes = {
		.attr = { (uint32_t)max_wr.value, (uint32_t)max_sge.value, chance(90) ? 0 : 5 }
	};
	uint32_t limit = attributes.attr.srq_limit;
	call("ibv_create_srq");
	arg("place=%s pd=%s max_wr=%s max_sge=%s limit=%u", index_name('s', place), index_name('d', pd), max_wr.name,
	    max_sge.name, limit);
	if (place >= 0 && pd >= 0) {
		t.srqs[place] = ibv_create_srq(t.pds[pd], &attributes);
		result_pointer(t.srqs[place]);
		if (t.srqs[place])
			out("max_wr=%s max_sge=%s limit=%u", relation(attributes.attr.max_wr, max_wr.value),
			    relation(attributes.attr.max_sge, max_sge.value), attributes.attr.srq_limit);
	}
	end_call();
}

static void destroy_srq(void)
{
	int place = some_srq();
	call("ibv_destroy_srq");
	arg("srq=%s", index_name('s', place));
	if (place >= 0) {
		int code = ibv_destroy_srq(t.srqs[place]);
		result_code(code);
		if (!code)
			t.srqs[place] = NULL;
	}
	end_call();
}

static void modify_srq(void)
{
	int place = some_srq();
	uint32_t mask = ONE_OF(IBV_SRQ_LIMIT, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR, 0, 4, 1u << 31);
	struct boundary max_wr = boundary_above((uint32_t)t.limits.max_srq_wr, 32);
	uint32_t limit = ONE_OF(0, 1, 2, 8, 10000, UINT32_MAX);
	call("ibv_modify_srq");
	arg("srq=%s mask=%#x max_wr=%s limit=%u", index_name('s', place), mask, max_wr.name, limit);
	if (place >= 0) {
		struct ibv_srq_attr attributes = { (uint32_t)max_wr.value, 2, limit };
		result_code(ibv_modify_srq(t.srqs[place], &attributes, (int)mask));
	}
	end_call();
	if (mask & IBV_SRQ_LIMIT)
		settle(); /* it may be reached at once */
}

static void query_srq(void)
{
	int place = some_srq();
	call("ibv_query_srq");
	arg("srq=%s", index_name('s', place));
	if (place >= 0) {
		struct ibv_srq_attr attributes = { 0 };
		int code = ibv_query_srq(t.srqs[place], &attributes);
		result_code(code);
		if (!code)
			out("limit=%u max_sge=%s", attributes.srq_limit, relation(attributes.max_sge, 2));
	}
	end_call();
}

const struct step queue_steps[] = {
	{ create_comp_channel, 2 },
	{ destroy_comp_channel, 1 },
	{ create_cq, 4 },
	{ destroy_cq, 2 },
	{ resize_cq, 2 },
	{ req_notify_cq, 6 },
	{ get_cq_event, 6 },
	{ create_srq, 3 },
	{ destroy_srq, 1 },
	{ modify_srq, 2 },
	{ query_srq, 2 },
	{ 0 },
};
