/* Threads that take the events of one channel, beside connections that come and go. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"
#include "events.h"

enum { LENGTH = 64, CONNECTORS = 2, WORKERS = 4, MESSAGES = 4 };

struct shared {
	struct endpoint endpoint;
	/* Readable when the thread that takes events is to end. */
	int stop;
	atomic_int remaining;
	atomic_int events;
};

/* A queue that the thread of events acknowledges and arms again. Its address is its context. */
struct member {
	/* Atomic for tools that do not see the locks of the library. */
	_Atomic(struct ibv_cq *) cq;
	sem_t reported;
};

static void on_event(struct shared *shared, struct ibv_cq *cq, void *context)
{
	struct member *member = context;
	CHECK(member->cq == cq);
	CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
	sem_post(&member->reported);
	atomic_fetch_add(&shared->events, 1);
	/* From here on the queue may be gone. */
	ibv_ack_cq_events(cq, 1);
}

/* Takes events up to one of a queue without a context. */
static void *take_by_blocking(void *argument)
{
	struct shared *shared = argument;
	struct ibv_cq *cq;
	void *context;
	for (;;) {
		CHECK_EQ(ibv_get_cq_event(shared->endpoint.channel, &cq, &context), 0);
		if (!context)
			break;
		on_event(shared, cq, context);
	}
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

/* Takes the events of a descriptor that is readable. It may be empty where a queue was destroyed. */
static void take_all(struct shared *shared)
{
	struct ibv_cq *cq;
	void *context;
	while (ibv_get_cq_event(shared->endpoint.channel, &cq, &context) == 0)
		on_event(shared, cq, context);
	CHECK_EQ(errno, EAGAIN);
}

static void *take_by_poll(void *argument)
{
	struct shared *shared = argument;
	struct pollfd set[] = {{.fd = shared->endpoint.channel->fd, .events = POLLIN},
			       {.fd = shared->stop, .events = POLLIN}};
	for (;;) {
		CHECK(poll(set, 2, -1) > 0);
		if (set[1].revents)
			return NULL;
		take_all(shared);
	}
}

static void add_to_epoll(int epoll, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};
	CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
}

static void *take_by_epoll(void *argument)
{
	struct shared *shared = argument;
	int epoll = epoll_create1(0);
	CHECK(epoll >= 0);
	/* Only a change from empty to readable wakes it. */
	add_to_epoll(epoll, shared->endpoint.channel->fd, EPOLLIN | EPOLLET);
	add_to_epoll(epoll, shared->stop, EPOLLIN);
	for (;;) {
		struct epoll_event found;
		CHECK_EQ(epoll_wait(epoll, &found, 1, -1), 1);
		if (found.data.fd == shared->stop)
			break;
		take_all(shared);
	}
	CHECK_EQ(close(epoll), 0);
	return NULL;
}

static void wait_for_report(struct member *member)
{
	while (sem_wait(&member->reported) != 0)
		CHECK_EQ(errno, EINTR);
}

/* Takes completions of a queue after its reports, until there were so many. */
static void take_completions(struct member *member, int count)
{
	wait_for_report(member);
	while (count > 0) {
		struct ibv_wc found[4];
		int polled = ibv_poll_cq(member->cq, 4, found);
		CHECK(polled >= 0);
		for (int i = 0; i < polled; i++)
			CHECK_EQ(found[i].status, IBV_WC_SUCCESS);
		count -= polled;
		if (polled == 0)
			wait_for_report(member);
	}
}

/* Makes, uses and destroys connections, each with a queue of its own. */
static void *connect_again_and_again(void *argument)
{
	struct shared *shared = argument;
	struct endpoint endpoint = shared->endpoint;
	while (atomic_fetch_sub(&shared->remaining, 1) > 0) {
		struct member member;
		CHECK_EQ(sem_init(&member.reported, 0, 0), 0);
		endpoint.cq = ibv_create_cq(endpoint.context, 16, &member, endpoint.channel, 0);
		CHECK(endpoint.cq);
		member.cq = endpoint.cq;
		CHECK_EQ(ibv_req_notify_cq(endpoint.cq, 0), 0);
		struct connection connection = connect_to_self(&endpoint, 4);
		CHECK_EQ(post_recv(connection.right, &endpoint, LENGTH, LENGTH, 1), 0);
		CHECK_EQ(post_send(connection.left, &endpoint, 0, LENGTH, 2), 0);
		take_completions(&member, 2);
		/* A report that the thread fetches while the queue is destroyed. */
		CHECK_EQ(post_recv(connection.right, &endpoint, LENGTH, LENGTH, 3), 0);
		to_error(connection.right);
		disconnect(&connection);
		CHECK_EQ(ibv_destroy_cq(endpoint.cq), 0);
		CHECK_EQ(sem_destroy(&member.reported), 0);
	}
	return NULL;
}

static void stop_by_descriptor(struct shared *shared, pthread_t taker)
{
	CHECK_EQ(eventfd_write(shared->stop, 1), 0);
	CHECK_EQ(pthread_join(taker, NULL), 0);
}

static void stop_by_event(struct shared *shared, pthread_t taker)
{
	struct endpoint last = shared->endpoint;
	last.cq = ibv_create_cq(last.context, 16, NULL, last.channel, 0);
	CHECK(last.cq);
	struct ibv_qp *qp = make_qp(&last, 4);
	CHECK_EQ(to_init(qp), 0);
	CHECK_EQ(ibv_req_notify_cq(last.cq, 0), 0);
	CHECK_EQ(post_recv(qp, &last, 0, LENGTH, 1), 0);
	to_error(qp);
	CHECK_EQ(pthread_join(taker, NULL), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_cq(last.cq), 0);
}

static void run_beside(void *(*take)(void *), void (*stop)(struct shared *, pthread_t))
{
	struct shared shared = {.remaining = rounds(1000), .stop = eventfd(0, 0)};
	pthread_t taker, connectors[CONNECTORS];
	int wanted = shared.remaining;
	CHECK(shared.stop >= 0);
	open_endpoint(&shared.endpoint, 4096, 16);
	if (take != take_by_blocking)
		make_non_blocking(shared.endpoint.channel->fd);
	CHECK_EQ(pthread_create(&taker, NULL, take, &shared), 0);
	for (int i = 0; i < CONNECTORS; i++)
		CHECK_EQ(pthread_create(&connectors[i], NULL, connect_again_and_again, &shared), 0);
	for (int i = 0; i < CONNECTORS; i++)
		CHECK_EQ(pthread_join(connectors[i], NULL), 0);
	CHECK(!is_readable(shared.endpoint.channel->fd));
	stop(&shared, taker);
	CHECK(shared.events >= wanted);
	CHECK_EQ(close(shared.stop), 0);
	close_endpoint(&shared.endpoint);
}

void channel_with_a_thread_that_blocks(void)
{
	run_beside(take_by_blocking, stop_by_event);
}

void channel_with_a_thread_that_polls(void)
{
	run_beside(take_by_poll, stop_by_descriptor);
}

void channel_with_a_thread_of_epoll(void)
{
	run_beside(take_by_epoll, stop_by_descriptor);
}

/* An executor: one thread waits by epoll and gives each event to a pool. */
struct work {
	struct ibv_cq *cq;
	struct session *session;
};

struct executor {
	struct shared shared;
	pthread_mutex_t lock;
	pthread_cond_t added;
	struct work ring[1024];
	unsigned first, last;
	bool is_ended;
	atomic_int sessions;
};

/* A connection with a queue of its own, whose events workers handle, several at a time. */
struct session {
	struct endpoint endpoint;
	struct connection connection;
	pthread_mutex_t lock;
	int sent, received, posted;
	/* Events that workers have, and one for the session itself: the last one destroys it. */
	atomic_int users;
	atomic_bool is_over;
};

static void submit(struct executor *executor, struct work work)
{
	CHECK_EQ(pthread_mutex_lock(&executor->lock), 0);
	CHECK(executor->last - executor->first < 1024);
	executor->ring[executor->last++ % 1024] = work;
	CHECK_EQ(pthread_cond_signal(&executor->added), 0);
	CHECK_EQ(pthread_mutex_unlock(&executor->lock), 0);
}

static void start_session(struct executor *executor)
{
	struct session *session = calloc(1, sizeof(*session));
	CHECK(session);
	session->endpoint = executor->shared.endpoint;
	CHECK_EQ(pthread_mutex_init(&session->lock, NULL), 0);
	session->users = 1;
	session->endpoint.cq = ibv_create_cq(session->endpoint.context, 16, session,
					     session->endpoint.channel, 0);
	CHECK(session->endpoint.cq);
	CHECK_EQ(ibv_req_notify_cq(session->endpoint.cq, 0), 0);
	CHECK_EQ(pthread_mutex_lock(&session->lock), 0);
	session->connection = connect_to_self(&session->endpoint, 8);
	for (int i = 0; i < MESSAGES; i++)
		CHECK_EQ(post_recv(session->connection.right, &session->endpoint, LENGTH, LENGTH, 1), 0);
	CHECK_EQ(post_send(session->connection.left, &session->endpoint, 0, LENGTH, 2), 0);
	session->posted = 1;
	CHECK_EQ(pthread_mutex_unlock(&session->lock), 0);
}

static void leave_session(struct executor *executor, struct session *session)
{
	if (atomic_fetch_sub(&session->users, 1) != 1)
		return;
	disconnect(&session->connection);
	CHECK_EQ(ibv_destroy_cq(session->endpoint.cq), 0);
	CHECK_EQ(pthread_mutex_destroy(&session->lock), 0);
	free(session);
	if (atomic_fetch_sub(&executor->shared.remaining, 1) > 0)
		start_session(executor);
	else
		atomic_fetch_sub(&executor->sessions, 1);
}

static void handle(struct executor *executor, struct work work)
{
	struct session *session = work.session;
	struct ibv_wc found[2];
	int polled;
	CHECK_EQ(ibv_req_notify_cq(work.cq, 0), 0);
	while ((polled = ibv_poll_cq(work.cq, 2, found)) > 0) {
		CHECK_EQ(pthread_mutex_lock(&session->lock), 0);
		for (int i = 0; i < polled; i++) {
			CHECK_EQ(found[i].status, IBV_WC_SUCCESS);
			if (found[i].wr_id == 2)
				session->sent++;
			else
				session->received++;
		}
		bool is_round_over = session->sent == session->posted &&
				     session->received == session->posted;
		if (is_round_over && session->posted < MESSAGES) {
			session->posted++;
			CHECK_EQ(post_send(session->connection.left, &session->endpoint, 0, LENGTH, 2),
				 0);
		} else if (is_round_over && !session->is_over) {
			session->is_over = true;
			atomic_fetch_sub(&session->users, 1);
		}
		CHECK_EQ(pthread_mutex_unlock(&session->lock), 0);
	}
	CHECK_EQ(polled, 0);
	ibv_ack_cq_events(work.cq, 1);
	leave_session(executor, session);
}

static void *work_for(void *argument)
{
	struct executor *executor = argument;
	CHECK_EQ(pthread_mutex_lock(&executor->lock), 0);
	for (;;) {
		while (executor->first == executor->last && !executor->is_ended)
			CHECK_EQ(pthread_cond_wait(&executor->added, &executor->lock), 0);
		if (executor->first == executor->last)
			break;
		struct work work = executor->ring[executor->first++ % 1024];
		CHECK_EQ(pthread_mutex_unlock(&executor->lock), 0);
		handle(executor, work);
		CHECK_EQ(pthread_mutex_lock(&executor->lock), 0);
	}
	CHECK_EQ(pthread_mutex_unlock(&executor->lock), 0);
	return NULL;
}

/* Counts the worker as a user, unless the last one has left. */
static bool join_session(struct session *session)
{
	int users = session->users;
	while (users > 0)
		if (atomic_compare_exchange_weak(&session->users, &users, users + 1))
			return true;
	return false;
}

static void dispatch(struct executor *executor)
{
	struct ibv_cq *cq;
	void *context;
	int epoll = epoll_create1(0);
	CHECK(epoll >= 0);
	add_to_epoll(epoll, executor->shared.endpoint.channel->fd, EPOLLIN | EPOLLET);
	while (executor->sessions > 0) {
		struct epoll_event found;
		if (epoll_wait(epoll, &found, 1, 100) == 0)
			continue;
		while (ibv_get_cq_event(executor->shared.endpoint.channel, &cq, &context) == 0) {
			/* The queue stays until its event is acknowledged. */
			if (join_session(context))
				submit(executor, (struct work){cq, context});
			else
				ibv_ack_cq_events(cq, 1);
		}
		CHECK_EQ(errno, EAGAIN);
	}
	CHECK_EQ(close(epoll), 0);
}

void channel_with_an_executor(void)
{
	enum { AT_ONCE = 8 };
	static struct executor executor;
	pthread_t workers[WORKERS];
	executor.shared.remaining = rounds(1000);
	executor.sessions = AT_ONCE;
	CHECK_EQ(pthread_mutex_init(&executor.lock, NULL), 0);
	CHECK_EQ(pthread_cond_init(&executor.added, NULL), 0);
	open_endpoint(&executor.shared.endpoint, 4096, 16);
	make_non_blocking(executor.shared.endpoint.channel->fd);
	for (int i = 0; i < AT_ONCE; i++)
		start_session(&executor);
	for (int i = 0; i < WORKERS; i++)
		CHECK_EQ(pthread_create(&workers[i], NULL, work_for, &executor), 0);
	dispatch(&executor);
	CHECK_EQ(pthread_mutex_lock(&executor.lock), 0);
	executor.is_ended = true;
	CHECK_EQ(pthread_cond_broadcast(&executor.added), 0);
	CHECK_EQ(pthread_mutex_unlock(&executor.lock), 0);
	for (int i = 0; i < WORKERS; i++)
		CHECK_EQ(pthread_join(workers[i], NULL), 0);
	CHECK(!is_readable(executor.shared.endpoint.channel->fd));
	close_endpoint(&executor.shared.endpoint);
}

/* A queue that one thread polls all the time, while another one waits for its events by poll(2) alone
 * and reads each that is announced. */
static void *read_what_is_announced(void *argument)
{
	struct shared *shared = argument;
	struct pollfd set[] = {{.fd = shared->endpoint.channel->fd, .events = POLLIN},
			       {.fd = shared->stop, .events = POLLIN}};
	struct ibv_cq *cq;
	void *context;
	for (;;) {
		CHECK(poll(set, 2, -1) > 0);
		if (set[1].revents)
			return NULL;
		/* No queue is destroyed, and no other thread reads. */
		CHECK_EQ(ibv_get_cq_event(shared->endpoint.channel, &cq, &context), 0);
		CHECK(cq == shared->endpoint.cq);
		ibv_ack_cq_events(cq, 1);
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		atomic_fetch_add(&shared->events, 1);
	}
}

void channel_with_many_pollers(void)
{
	struct shared shared = {.stop = eventfd(0, 0)};
	pthread_t reader;
	CHECK(shared.stop >= 0);
	open_endpoint(&shared.endpoint, 4096, 64);
	make_non_blocking(shared.endpoint.channel->fd);
	struct connection connection = connect_to_self(&shared.endpoint, 32);
	CHECK_EQ(ibv_req_notify_cq(shared.endpoint.cq, 0), 0);
	CHECK_EQ(pthread_create(&reader, NULL, read_what_is_announced, &shared), 0);
	for (int i = 0; i < rounds(4000); i++) {
		for (int request = 0; request < 4; request++)
			CHECK_EQ(post_rdma(connection.left, &shared.endpoint, IBV_WR_RDMA_WRITE, 0, 64,
					   (uintptr_t)shared.endpoint.buffer + 64,
					   shared.endpoint.mr->rkey, request),
				 0);
		for (int request = 0; request < 4; request++)
			CHECK_EQ(next_completion(shared.endpoint.cq).status, IBV_WC_SUCCESS);
	}
	stop_by_descriptor(&shared, reader);
	CHECK(shared.events > 0);
	disconnect(&connection);
	CHECK_EQ(close(shared.stop), 0);
	close_endpoint(&shared.endpoint);
}
