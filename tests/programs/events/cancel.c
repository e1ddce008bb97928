/* Threads that are cancelled. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"
#include "events.h"

enum { LENGTH = 64 };

struct waiter {
	struct endpoint endpoint;
	struct connection connection;
	/* The thread runs; its cleanup handler has run; it has got an event. */
	atomic_int started, cleaned, got;
};

static void note_cleaned(void *argument)
{
	((struct waiter *)argument)->cleaned++;
}

static void *wait_for_one_completion(void *argument)
{
	struct waiter *waiter = argument;
	struct ibv_cq *cq;
	void *context;
	pthread_cleanup_push(note_cleaned, waiter);
	waiter->started = 1;
	CHECK_EQ(ibv_get_cq_event(waiter->endpoint.channel, &cq, &context), 0);
	waiter->got++;
	CHECK(cq == waiter->endpoint.cq);
	ibv_ack_cq_events(cq, 1);
	pthread_cleanup_pop(0);
	return NULL;
}

static pthread_t start(struct waiter *waiter, void *(*run)(void *))
{
	pthread_t thread;
	waiter->started = waiter->cleaned = waiter->got = 0;
	CHECK_EQ(pthread_create(&thread, NULL, run, waiter), 0);
	while (!waiter->started)
		sched_yield();
	return thread;
}

/* Lets some time go by, another one in each round: at the end of it the other thread may drive the
 * device, or sleep. */
static void spin(int round)
{
	unsigned long long end = now() + round % 20 * 10000ull;
	while (now() < end)
		sched_yield();
	if (round % 5 == 0)
		usleep(2000);
}

static void begin(struct waiter *waiter)
{
	open_endpoint(&waiter->endpoint, 4096, 64);
	waiter->connection = connect_to_self(&waiter->endpoint, 16);
}

static void end(struct waiter *waiter)
{
	disconnect(&waiter->connection);
	close_endpoint(&waiter->endpoint);
}

static void post_message(struct waiter *waiter)
{
	CHECK_EQ(post_recv(waiter->connection.right, &waiter->endpoint, LENGTH, LENGTH, 1), 0);
	CHECK_EQ(post_send(waiter->connection.left, &waiter->endpoint, 0, LENGTH, 2), 0);
}

static void take_message(struct waiter *waiter)
{
	for (int i = 0; i < 2; i++)
		CHECK_EQ(next_completion(waiter->endpoint.cq).status, IBV_WC_SUCCESS);
}

/* Joins a thread that was cancelled; returns true if it was not before it had ended. */
static bool join_cancelled(struct waiter *waiter, pthread_t thread)
{
	void *result;
	CHECK_EQ(pthread_join(thread, &result), 0);
	CHECK(result == PTHREAD_CANCELED || result == NULL);
	CHECK_EQ(waiter->cleaned, result == PTHREAD_CANCELED);
	return result == PTHREAD_CANCELED;
}

void cancelled_wait_for_completions(void)
{
	struct waiter waiter;
	begin(&waiter);
	for (int round = 0; round < rounds(200); round++) {
		CHECK_EQ(ibv_req_notify_cq(waiter.endpoint.cq, 0), 0);
		pthread_t thread = start(&waiter, wait_for_one_completion);
		spin(round);
		bool races = round % 2;
		if (races)
			post_message(&waiter);
		CHECK_EQ(pthread_cancel(thread), 0);
		bool is_cancelled = join_cancelled(&waiter, thread);
		if (!races) {
			CHECK(is_cancelled);
			post_message(&waiter);
		}
		/* The event is there for this thread, if the other one has not got it. */
		CHECK_EQ(is_cancelled, !waiter.got);
		if (is_cancelled)
			wait_for_one_completion(&waiter);
		take_message(&waiter);
	}
	end(&waiter);
}

static void *wait_for_one_event(void *argument)
{
	struct waiter *waiter = argument;
	struct ibv_async_event event;
	pthread_cleanup_push(note_cleaned, waiter);
	waiter->started = 1;
	CHECK_EQ(get_object_event(waiter->endpoint.context, &event), 0);
	waiter->got++;
	CHECK_EQ(event.event_type, IBV_EVENT_CQ_ERR);
	ibv_ack_async_event(&event);
	pthread_cleanup_pop(0);
	return NULL;
}

void cancelled_wait_for_events(void)
{
	struct waiter waiter;
	open_endpoint(&waiter.endpoint, 4096, 64);
	for (int round = 0; round < rounds(60); round++) {
		struct endpoint small = waiter.endpoint;
		small.cq = ibv_create_cq(small.context, 1, NULL, NULL, 0);
		CHECK(small.cq);
		int room = small.cq->cqe;
		struct ibv_qp *qp = make_qp(&small, room + 4);
		CHECK_EQ(to_init(qp), 0);
		for (int i = 0; i < room + 1; i++)
			CHECK_EQ(post_recv(qp, &small, 0, LENGTH, i), 0);
		pthread_t thread = start(&waiter, wait_for_one_event);
		spin(round);
		bool races = round % 2;
		if (races)
			to_error(qp);
		CHECK_EQ(pthread_cancel(thread), 0);
		bool is_cancelled = join_cancelled(&waiter, thread);
		if (!races) {
			CHECK(is_cancelled);
			to_error(qp);
		}
		if (is_cancelled)
			wait_for_one_event(&waiter);
		CHECK_EQ(ibv_destroy_qp(qp), 0);
		CHECK_EQ(ibv_destroy_cq(small.cq), 0);
	}
	close_endpoint(&waiter.endpoint);
}

static void *wait_asynchronously(void *argument)
{
	CHECK_EQ(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
	return wait_for_one_completion(argument);
}

void cancelled_asynchronously(void)
{
	struct waiter waiter;
	begin(&waiter);
	for (int round = 0; round < rounds(100); round++) {
		pthread_t thread = start(&waiter, wait_asynchronously);
		spin(round);
		CHECK_EQ(pthread_cancel(thread), 0);
		CHECK(join_cancelled(&waiter, thread));
		CHECK_EQ(ibv_req_notify_cq(waiter.endpoint.cq, 0), 0);
		post_message(&waiter);
		wait_for_one_completion(&waiter);
		take_message(&waiter);
	}
	end(&waiter);
}

static void *wait_with_cancellation_disabled(void *argument)
{
	struct waiter *waiter = argument;
	CHECK_EQ(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
	wait_for_one_completion(waiter);
	int before;
	CHECK_EQ(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before), 0);
	CHECK_EQ(before, PTHREAD_CANCEL_DISABLE);
	pthread_cleanup_push(note_cleaned, waiter);
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

void cancelled_where_that_is_disabled(void)
{
	struct waiter waiter;
	begin(&waiter);
	for (int round = 0; round < rounds(100); round++) {
		CHECK_EQ(ibv_req_notify_cq(waiter.endpoint.cq, 0), 0);
		pthread_t thread = start(&waiter, wait_with_cancellation_disabled);
		spin(round);
		CHECK_EQ(pthread_cancel(thread), 0);
		spin(round / 2);
		CHECK_EQ(waiter.got, 0);
		post_message(&waiter);
		CHECK(join_cancelled(&waiter, thread));
		CHECK_EQ(waiter.got, 1);
		take_message(&waiter);
	}
	end(&waiter);
}

/* With a cancellation that is pending, calls that do not wait are no cancellation points. */
static void *call_everything_else(void *argument)
{
	struct waiter *waiter = argument;
	struct ibv_cq *cq;
	void *context;
	struct ibv_device_attr attributes;
	pthread_cleanup_push(note_cleaned, waiter);
	CHECK_EQ(pthread_cancel(pthread_self()), 0);
	use_own_device(3);
	begin(waiter);
	CHECK_EQ(ibv_query_device(waiter->endpoint.context, &attributes), 0);
	CHECK_EQ(ibv_req_notify_cq(waiter->endpoint.cq, 0), 0);
	post_message(waiter);
	take_message(waiter);
	/* There is an event: whether this fetches it or ends the thread, it is as in read. */
	waiter->started = 1;
	pthread_testcancel();
	CHECK_EQ(ibv_get_cq_event(waiter->endpoint.channel, &cq, &context), 0);
	pthread_cleanup_pop(0);
	return NULL;
}

void cancelled_before_other_calls(void)
{
	for (int round = 0; round < rounds(20); round++) {
		struct waiter waiter;
		pthread_t thread = start(&waiter, call_everything_else);
		CHECK(join_cancelled(&waiter, thread));
		wait_for_one_completion(&waiter);
		end(&waiter);
	}
}
