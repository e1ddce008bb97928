/* Signals during waits. */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "check.h"
#include "endpoint.h"
#include "limit_event.h"
#include "torture.h"

#define LENGTH 8192

static volatile sig_atomic_t alarms;

static void count_alarm(int signal)
{
	(void)signal;
	alarms++;
}

static void start_alarms(int flags)
{
	struct sigaction action = {.sa_handler = count_alarm, .sa_flags = flags};
	struct itimerval every = {.it_interval.tv_usec = 500, .it_value.tv_usec = 500};
	alarms = 0;
	CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
	CHECK_EQ(setitimer(ITIMER_REAL, &every, NULL), 0);
}

static void stop_alarms(void)
{
	struct itimerval never = {.it_value.tv_usec = 0};
	CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
	CHECK(alarms > 0);
}

/* Starts a thread that takes no signals. */
static pthread_t start_quiet_thread(void *(*run)(void *), void *argument)
{
	sigset_t all, before;
	pthread_t thread;
	sigfillset(&all);
	CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
	CHECK_EQ(pthread_create(&thread, NULL, run, argument), 0);
	CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	return thread;
}

struct party {
	struct endpoint endpoint;
	struct connection connection;
	struct limited limited;
};

static void begin(struct party *party)
{
	open_endpoint(&party->endpoint, 3 * LENGTH, 64);
	party->connection = connect_to_self(&party->endpoint, 16);
	make_limited(&party->limited, &party->endpoint);
}

static void end(struct party *party)
{
	destroy_limited(&party->limited);
	disconnect(&party->connection);
	close_endpoint(&party->endpoint);
}

static void post_message(struct party *party, unsigned seed)
{
	fill(party->endpoint.buffer, LENGTH, seed);
	CHECK_EQ(post_recv(party->connection.right, &party->endpoint, LENGTH, LENGTH, 1), 0);
	CHECK_EQ(post_send(party->connection.left, &party->endpoint, 0, LENGTH, 2), 0);
}

/* Takes the two completions of a message, and compares its bytes. */
static void take_message(struct party *party, unsigned seed)
{
	for (int i = 0; i < 2; i++)
		CHECK_EQ(next_completion(party->endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK(is_filled(party->endpoint.buffer + LENGTH, LENGTH, seed));
}

/* Waits for an event of the completion queue; returns the times that a signal ended the wait. */
static int wait_for_completions(struct party *party)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	int interruptions = 0;
	while (ibv_get_cq_event(party->endpoint.channel, &cq, &context) != 0) {
		CHECK_EQ(errno, EINTR);
		interruptions++;
	}
	CHECK(cq == party->endpoint.cq && context == &party->endpoint);
	ibv_ack_cq_events(cq, 1);
	return interruptions;
}

static void after_a_while(void)
{
	struct timespec time = {.tv_nsec = 50000000};
	nanosleep(&time, NULL);
}

static void *post_later(void *party)
{
	after_a_while();
	post_message(party, 3);
	return NULL;
}

static void *cause_event_later(void *party)
{
	after_a_while();
	cause_limit_event(&((struct party *)party)->limited);
	return NULL;
}

void signals_end_waits_for_completions(void)
{
	struct party party;
	struct ibv_cq *cq;
	void *context;
	begin(&party);
	CHECK_EQ(ibv_req_notify_cq(party.endpoint.cq, 0), 0);
	start_alarms(0);
	for (int i = 0; i < 50; i++)
		CHECK_MINUS_ONE(ibv_get_cq_event(party.endpoint.channel, &cq, &context), EINTR);
	for (int round = 0; round < rounds(200); round++) {
		post_message(&party, round);
		wait_for_completions(&party);
		take_message(&party, round);
		CHECK_EQ(ibv_req_notify_cq(party.endpoint.cq, 0), 0);
	}
	stop_alarms();
	end(&party);
}

void signals_restart_waits_for_completions(void)
{
	struct party party;
	begin(&party);
	CHECK_EQ(ibv_req_notify_cq(party.endpoint.cq, 0), 0);
	pthread_t thread = start_quiet_thread(post_later, &party);
	start_alarms(SA_RESTART);
	CHECK_EQ(wait_for_completions(&party), 0);
	stop_alarms();
	CHECK_EQ(pthread_join(thread, NULL), 0);
	take_message(&party, 3);
	end(&party);
}

void signals_end_waits_for_events(void)
{
	struct party party;
	struct ibv_async_event event;
	begin(&party);
	start_alarms(0);
	for (int i = 0; i < 50; i++)
		CHECK_MINUS_ONE(get_object_event(party.endpoint.context, &event), EINTR);
	for (int round = 0; round < rounds(100); round++) {
		cause_limit_event(&party.limited);
		while (get_object_event(party.endpoint.context, &event) != 0)
			CHECK_EQ(errno, EINTR);
		acknowledge_limit_event(&party.limited, &event);
	}
	stop_alarms();
	end(&party);
}

void signals_restart_waits_for_events(void)
{
	struct party party;
	struct ibv_async_event event;
	begin(&party);
	pthread_t thread = start_quiet_thread(cause_event_later, &party);
	start_alarms(SA_RESTART);
	CHECK_EQ(get_object_event(party.endpoint.context, &event), 0);
	stop_alarms();
	acknowledge_limit_event(&party.limited, &event);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	end(&party);
}

void signals_beside_polls(void)
{
	struct party party;
	begin(&party);
	start_alarms(0);
	for (int round = 0; round < rounds(2000) || alarms < 20; round++)
		transfer(&party.endpoint, &party.connection, LENGTH, round);
	stop_alarms();
	end(&party);
}
