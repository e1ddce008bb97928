/* A client of rdma_cm whose requests find no listener. Arguments:
 *
 *   hold ADDRESS                   listens on a port of the address until its input ends
 *   connect ADDRESS MODE COUNT     asks so many times for connections and for datagram services; with
 *                                  MODE poll, epoll or block for the event. Prints the times.
 *   beside ADDRESS MODE COUNT      as connect, beside a listener on the any address
 *   gone ADDRESS MODE COUNT        as connect, to the port of a listener that has been destroyed
 *   numbers ADDRESS                checks errno of calls that are refused
 *   without-files ADDRESS          connects where no file may have any length
 *   taken-back ADDRESS             looks at the channel of a listener whose peer takes its requests back
 *   moved ADDRESS                  moves a listener with a request to another channel
 *   moved-beside ADDRESS           moves one with requests to a channel on which a thread sleeps
 *   listen                         prints how long a listener on the any address took to begin, in
 *                                  milliseconds, how much of that was time of processors, and by how many KiB
 *                                  the process has grown
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "check.h"

enum { LISTENING_PORT = 7001, FIRST_CLOSED_PORT = 20000, MAX_COUNT = 100000, MOVED_REQUESTS = 8 };

enum mode { POLL, EPOLL, BLOCK };

static struct sockaddr_in address_of(const char *text, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	CHECK_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1);
	return address;
}

static struct rdma_cm_id *listen_on(struct rdma_event_channel *channel, const char *text, int port)
{
	struct sockaddr_in address = address_of(text, port);
	struct rdma_cm_id *id;
	CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
	CHECK_EQ(rdma_listen(id, 8), 0);
	return id;
}

/* Waits for the next event, and checks what it is. */
static int expect(struct rdma_event_channel *channel, enum mode mode, int epoll,
		  enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	if (mode == POLL) {
		struct pollfd set = {.fd = channel->fd, .events = POLLIN};
		CHECK_EQ(poll(&set, 1, 60000), 1);
	}
	if (mode == EPOLL) {
		struct epoll_event ready;
		CHECK_EQ(epoll_wait(epoll, &ready, 1, 60000), 1);
	}
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	CHECK_EQ(event->event, type);
	int status = event->status;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	return status;
}

static const struct rdma_conn_param parameters = {.retry_count = 7};

/* Makes an identifier with a queue pair that is about to connect. */
static struct rdma_cm_id *prepare(struct rdma_event_channel *channel, enum mode mode, int epoll,
				  const char *address, int port, enum rdma_port_space space)
{
	struct sockaddr_in to = address_of(address, port);
	struct rdma_cm_id *id;
	CHECK_EQ(rdma_create_id(channel, &id, NULL, space), 0);
	CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000), 0);
	expect(channel, mode, epoll, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_EQ(rdma_resolve_route(id, 5000), 0);
	expect(channel, mode, epoll, RDMA_CM_EVENT_ROUTE_RESOLVED);
	struct ibv_qp_init_attr attributes = {.cap = {4, 4, 1, 1, 0}};
	attributes.qp_type = space == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD;
	CHECK_EQ(rdma_create_qp(id, NULL, &attributes), 0);
	return id;
}

/* Asks for a connection, or for a datagram service, and returns the nanoseconds until it was refused. */
static unsigned long long ask(struct rdma_event_channel *channel, enum mode mode, int epoll,
			      const char *address, int port, enum rdma_port_space space)
{
	struct rdma_conn_param asked = parameters;
	struct rdma_cm_id *id = prepare(channel, mode, epoll, address, port, space);
	unsigned long long began = now();
	CHECK_EQ(rdma_connect(id, &asked), 0);
	if (space == RDMA_PS_TCP)
		CHECK_EQ(expect(channel, mode, epoll, RDMA_CM_EVENT_REJECTED), 8);
	else
		expect(channel, mode, epoll, RDMA_CM_EVENT_UNREACHABLE);
	unsigned long long took = now() - began;
	rdma_destroy_qp(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
	return took;
}

static int becomes_readable(int fd, int milliseconds)
{
	struct pollfd set = {.fd = fd, .events = POLLIN};
	int count = poll(&set, 1, milliseconds);
	CHECK(count >= 0);
	return count;
}

/* A request that its peer has taken back leaves no event beside itself, whether the program has fetched it by then
 * or not: the kernel has none for an identifier that the program has not accepted. */
static void take_back(const char *address)
{
	struct rdma_event_channel *active = rdma_create_event_channel();
	struct rdma_event_channel *passive = rdma_create_event_channel();
	CHECK(active && passive);
	struct rdma_cm_id *listener = listen_on(passive, address, LISTENING_PORT);
	for (int is_fetched = 0; is_fetched < 2; is_fetched++) {
		struct rdma_cm_id *id =
			prepare(active, POLL, -1, address, LISTENING_PORT, RDMA_PS_TCP);
		struct rdma_conn_param asked = parameters;
		struct rdma_cm_event *event;
		CHECK_EQ(rdma_connect(id, &asked), 0);
		CHECK_EQ(becomes_readable(passive->fd, 10000), 1);
		if (is_fetched)
			CHECK_EQ(rdma_get_cm_event(passive, &event), 0);
		rdma_destroy_qp(id);
		CHECK_EQ(rdma_destroy_id(id), 0);
		/* By then the listener's end knows of it; if not, less is looked at. */
		usleep(300000);
		if (!is_fetched)
			CHECK_EQ(rdma_get_cm_event(passive, &event), 0);
		CHECK_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *requested = event->id;
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		CHECK_EQ(becomes_readable(passive->fd, 0), 0);
		CHECK_EQ(becomes_readable(passive->fd, 100), 0);
		CHECK_EQ(rdma_destroy_id(requested), 0);
	}
	/* Nor where the listener ends before the program has fetched it. */
	struct rdma_cm_id *id = prepare(active, POLL, -1, address, LISTENING_PORT, RDMA_PS_TCP);
	struct rdma_conn_param asked = parameters;
	CHECK_EQ(rdma_connect(id, &asked), 0);
	CHECK_EQ(becomes_readable(passive->fd, 10000), 1);
	rdma_destroy_qp(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
	usleep(300000);
	CHECK_EQ(rdma_destroy_id(listener), 0);
	CHECK_EQ(becomes_readable(passive->fd, 100), 0);
}

/* A request that waits moves with its listener to another channel, and so do the events that follow it. */
static void move_listener(const char *address)
{
	struct rdma_event_channel *active = rdma_create_event_channel();
	struct rdma_event_channel *passive = rdma_create_event_channel();
	struct rdma_event_channel *other = rdma_create_event_channel();
	CHECK(active && passive && other);
	struct rdma_cm_id *listener = listen_on(passive, address, LISTENING_PORT);
	struct rdma_cm_id *id = prepare(active, POLL, -1, address, LISTENING_PORT, RDMA_PS_TCP);
	struct rdma_conn_param asked = parameters;
	struct ibv_qp_init_attr attributes = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_cm_event *event;
	CHECK_EQ(rdma_connect(id, &asked), 0);
	CHECK_EQ(becomes_readable(passive->fd, 10000), 1);
	CHECK_EQ(rdma_migrate_id(listener, other), 0);
	CHECK_EQ(becomes_readable(passive->fd, 0), 0);
	CHECK_EQ(rdma_get_cm_event(other, &event), 0);
	CHECK_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *requested = event->id;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	CHECK_EQ(rdma_create_qp(requested, NULL, &attributes), 0);
	struct rdma_conn_param accepted = parameters;
	CHECK_EQ(rdma_accept(requested, &accepted), 0);
	expect(active, POLL, -1, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(becomes_readable(other->fd, 10000), 1);
	expect(other, POLL, -1, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(becomes_readable(passive->fd, 0), 0);
}

static void *accept_all(void *argument)
{
	struct rdma_event_channel *channel = argument;
	for (int connected = 0; connected < MOVED_REQUESTS;) {
		struct rdma_conn_param accepted = {0};
		struct ibv_qp_init_attr attributes = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
		struct rdma_cm_event *event;
		CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			CHECK_EQ(rdma_create_qp(id, NULL, &attributes), 0);
			CHECK_EQ(rdma_accept(id, &accepted), 0);
		} else {
			CHECK_EQ(type, RDMA_CM_EVENT_ESTABLISHED);
			connected++;
		}
	}
	return NULL;
}

/* Moves a listener with requests to a channel on which another thread sleeps: that thread has an event while
 * rdma_migrate_id still runs. */
static void move_beside_waiter(const char *address)
{
	struct rdma_event_channel *from = rdma_create_event_channel();
	struct rdma_event_channel *to = rdma_create_event_channel();
	struct rdma_event_channel *asking = rdma_create_event_channel();
	struct pollfd waiting = {.fd = from->fd, .events = POLLIN};
	pthread_t thread;
	CHECK(from && to && asking);
	limit_time(30);
	struct rdma_cm_id *listener = listen_on(from, address, LISTENING_PORT);
	for (int i = 0; i < MOVED_REQUESTS; i++) {
		struct rdma_cm_id *id =
			prepare(asking, BLOCK, -1, address, LISTENING_PORT, RDMA_PS_TCP);
		CHECK_EQ(rdma_connect(id, (struct rdma_conn_param *)&parameters), 0);
	}
	CHECK_EQ(poll(&waiting, 1, 20000), 1);
	/* On one processor, the thread goes first: it has its event before the call has returned. */
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
	CHECK_EQ(pthread_create(&thread, NULL, accept_all, to), 0);
	CHECK_EQ(setpriority(PRIO_PROCESS, syscall(SYS_gettid), 19), 0);
	/* Most often it sleeps by then. */
	usleep(100000);
	CHECK_EQ(rdma_migrate_id(listener, to), 0);
	for (int i = 0; i < MOVED_REQUESTS; i++)
		expect(asking, BLOCK, -1, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

static int bind_to(struct rdma_event_channel *channel, const char *text, int port)
{
	struct sockaddr_in address = address_of(text, port);
	struct rdma_cm_id *id;
	CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	errno = 0;
	int result = rdma_bind_addr(id, (struct sockaddr *)&address), number = errno;
	CHECK_EQ(rdma_destroy_id(id), 0);
	return result ? number : 0;
}

static int set_flag(struct rdma_cm_id *id, int name, int value)
{
	return rdma_set_option(id, RDMA_OPTION_ID, name, &value, sizeof value);
}

static int init_attributes(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT};
	int mask;
	return rdma_init_qp_attr(id, &attributes, &mask);
}

/* Asks for a connection or a service, and returns the identifier of the request at the listener. */
static struct rdma_cm_id *take_request(struct rdma_cm_id *asking, struct rdma_event_channel *passive)
{
	struct rdma_conn_param asked = parameters;
	struct rdma_cm_event *event;
	CHECK_EQ(rdma_connect(asking, &asked), 0);
	CHECK_EQ(rdma_get_cm_event(passive, &event), 0);
	CHECK_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *requested = event->id;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	return requested;
}

/* Destroys the identifiers of both ends, and their channels. */
static void end_all(struct rdma_cm_id *asking, struct rdma_cm_id *requested, struct rdma_cm_id *listener)
{
	struct rdma_event_channel *active = asking->channel, *passive = listener->channel;
	rdma_destroy_qp(asking);
	CHECK_EQ(rdma_destroy_id(asking), 0);
	CHECK_EQ(rdma_destroy_id(requested), 0);
	CHECK_EQ(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(active);
	rdma_destroy_event_channel(passive);
}

/* A passive end that goes on as if its peer had answered. The kernel refuses the request for a connection then, so
 * that the peer does not wait, and accepts that for a datagram service. */
static void establish_early(const char *own, enum rdma_port_space space)
{
	struct rdma_event_channel *active = rdma_create_event_channel();
	struct rdma_event_channel *passive = rdma_create_event_channel();
	struct sockaddr_in address = address_of(own, LISTENING_PORT);
	struct rdma_cm_id *listener;
	CHECK_EQ(rdma_create_id(passive, &listener, NULL, space), 0);
	CHECK_EQ(rdma_bind_addr(listener, (struct sockaddr *)&address), 0);
	CHECK_EQ(rdma_listen(listener, 8), 0);
	struct rdma_cm_id *asking = prepare(active, POLL, -1, own, LISTENING_PORT, space);
	struct rdma_cm_id *requested = take_request(asking, passive);
	if (space == RDMA_PS_TCP) {
		CHECK_MINUS_ONE(rdma_establish(requested), EINVAL);
		CHECK_EQ(expect(active, POLL, -1, RDMA_CM_EVENT_REJECTED), 28);
	} else {
		CHECK_EQ(rdma_establish(requested), 0);
		expect(active, POLL, -1, RDMA_CM_EVENT_ESTABLISHED);
	}
	end_all(asking, requested, listener);
}

/* An identifier that is bound takes no requests before it listens: they are refused at once. */
static void listen_late(const char *own)
{
	struct rdma_event_channel *active = rdma_create_event_channel();
	struct rdma_event_channel *passive = rdma_create_event_channel();
	struct sockaddr_in address = address_of(own, LISTENING_PORT);
	struct rdma_cm_id *bound;
	CHECK_EQ(rdma_create_id(passive, &bound, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(bound, (struct sockaddr *)&address), 0);
	ask(active, POLL, -1, own, LISTENING_PORT, RDMA_PS_TCP);
	CHECK_EQ(rdma_listen(bound, 8), 0);
	struct rdma_cm_id *asking = prepare(active, POLL, -1, own, LISTENING_PORT, RDMA_PS_TCP);
	struct rdma_cm_id *requested = take_request(asking, passive);
	end_all(asking, requested, bound);
}

/* As in a sandbox: no file may have any length, and the kernel's signal ends what writes to one. The kernel's
 * rdma_cm writes to none. */
static void connect_without_files(const char *own)
{
	struct rlimit none = {0, 0};
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
	struct rdma_event_channel *active = rdma_create_event_channel();
	struct rdma_event_channel *passive = rdma_create_event_channel();
	listen_on(passive, own, LISTENING_PORT);
	struct rdma_cm_id *asking = prepare(active, POLL, -1, own, LISTENING_PORT, RDMA_PS_TCP);
	struct rdma_cm_id *requested = take_request(asking, passive);
	struct ibv_qp_init_attr attributes = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	CHECK_EQ(rdma_create_qp(requested, NULL, &attributes), 0);
	struct rdma_conn_param accepted = parameters;
	CHECK_EQ(rdma_accept(requested, &accepted), 0);
	expect(active, POLL, -1, RDMA_CM_EVENT_ESTABLISHED);
	expect(passive, POLL, -1, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(rdma_disconnect(asking), 0);
	expect(passive, POLL, -1, RDMA_CM_EVENT_DISCONNECTED);
}

/* Refused calls have the numbers that rdma_cm of the kernel gives. */
static void check_numbers(const char *own)
{
	establish_early(own, RDMA_PS_TCP);
	establish_early(own, RDMA_PS_UDP);
	listen_late(own);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in to = address_of(own, FIRST_CLOSED_PORT);
	struct rdma_cm_id *id;
	CHECK_EQ(bind_to(channel, "10.9.9.9", 0), EADDRNOTAVAIL);
	struct rdma_cm_id *one = listen_on(channel, own, LISTENING_PORT);
	CHECK_EQ(bind_to(channel, own, LISTENING_PORT), EADDRINUSE);
	struct sockaddr_in in_use = address_of(own, LISTENING_PORT);
	CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_MINUS_ONE(rdma_bind_addr(id, (struct sockaddr *)&in_use), EADDRINUSE);
	CHECK_MINUS_ONE(init_attributes(id), EINVAL);
	CHECK_EQ(rdma_destroy_id(id), 0);
	CHECK_EQ(bind_to(channel, "0.0.0.0", LISTENING_PORT), EADDRNOTAVAIL);
	CHECK_EQ(rdma_get_peer_addr(one)->sa_family, AF_INET);
	CHECK_EQ(rdma_get_dst_port(one), 0);
	CHECK_MINUS_ONE(init_attributes(one), EINVAL);
	CHECK_MINUS_ONE(set_flag(one, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);
	CHECK_EQ(rdma_disconnect(one), 0);
	CHECK_EQ(rdma_destroy_id(one), 0);
	struct rdma_cm_id *any = listen_on(channel, "0.0.0.0", LISTENING_PORT);
	CHECK_EQ(bind_to(channel, own, LISTENING_PORT), EADDRNOTAVAIL);
	CHECK_EQ(bind_to(channel, "0.0.0.0", LISTENING_PORT), EADDRNOTAVAIL);
	CHECK_MINUS_ONE(rdma_disconnect(any), EINVAL);
	CHECK_EQ(rdma_destroy_id(any), 0);

	CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
	CHECK_MINUS_ONE(init_attributes(id), EINVAL);
	struct sockaddr_in any_port = address_of(own, 0);
	CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&any_port), 0);
	CHECK_EQ(init_attributes(id), 0);
	CHECK_EQ(set_flag(id, RDMA_OPTION_ID_AFONLY, 0), 0);
	uint8_t timeout = 14; /* datagrams are not acknowledged */
	CHECK_MINUS_ONE(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), EINVAL);
	CHECK_EQ(rdma_destroy_id(id), 0);
	CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_IPOIB), 0);
	struct sockaddr_in foreign = address_of("10.9.9.9", 0);
	CHECK_MINUS_ONE(rdma_bind_addr(id, (struct sockaddr *)&foreign), EADDRNOTAVAIL);
	CHECK_MINUS_ONE(rdma_bind_addr(id, (struct sockaddr *)&any_port), EINVAL);
	CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000), 0);
	CHECK_EQ(expect(channel, POLL, -1, RDMA_CM_EVENT_ADDR_ERROR), -EINVAL);
	CHECK_EQ(rdma_listen(id, 8), 0); /* the failed call has bound it to any address */
	CHECK(rdma_get_src_port(id) != 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
	struct sockaddr_in loopback = address_of("127.0.0.1", 0);
	struct sockaddr_in unspecified = address_of("0.0.0.0", 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_IPOIB), 0);
		CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)(i ? &unspecified : &loopback), 5000), 0);
		CHECK_EQ(expect(channel, POLL, -1, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
		CHECK_EQ(rdma_destroy_id(id), 0);
	}
	CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&loopback), 0);
	CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000), 0);
	CHECK_EQ(expect(channel, POLL, -1, RDMA_CM_EVENT_ADDR_ERROR), -ENODEV);
	CHECK_EQ(rdma_destroy_id(id), 0);

	CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_MINUS_ONE(rdma_disconnect(id), EINVAL);
	CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000), 0);
	expect(channel, POLL, -1, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_MINUS_ONE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000), EINVAL);
	CHECK_EQ(set_flag(id, RDMA_OPTION_ID_REUSEADDR, 1), 0);
	CHECK_MINUS_ONE(set_flag(id, RDMA_OPTION_ID_REUSEADDR, 0), EINVAL);
	CHECK_MINUS_ONE(set_flag(id, RDMA_OPTION_ID_AFONLY, 0), EINVAL);
	struct ibv_qp_attr early = {.qp_state = IBV_QPS_RTR};
	int mask;
	CHECK_EQ(rdma_init_qp_attr(id, &early, &mask), 0);
	CHECK_EQ(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	CHECK_EQ(rdma_resolve_route(id, 5000), 0);
	expect(channel, POLL, -1, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK_MINUS_ONE(rdma_disconnect(id), EINVAL);
	struct ibv_qp_init_attr attributes = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	CHECK_EQ(rdma_create_qp(id, NULL, &attributes), 0);
	struct rdma_conn_param parameters = {.retry_count = 7};
	CHECK_EQ(rdma_connect(id, &parameters), 0);
	CHECK_EQ(rdma_disconnect(id), 0);
	CHECK_EQ(expect(channel, POLL, -1, RDMA_CM_EVENT_REJECTED), 8);
	CHECK_MINUS_ONE(rdma_connect(id, &parameters), EINVAL);
	CHECK_EQ(rdma_disconnect(id), 0);
	CHECK_EQ(rdma_disconnect(id), 0);
	rdma_destroy_qp(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static int compare(const void *left, const void *right)
{
	unsigned long long a = *(const unsigned long long *)left;
	unsigned long long b = *(const unsigned long long *)right;
	return a < b ? -1 : a > b;
}

static enum mode mode_of(const char *text)
{
	if (!strcmp(text, "poll"))
		return POLL;
	if (!strcmp(text, "epoll"))
		return EPOLL;
	CHECK(!strcmp(text, "block"));
	return BLOCK;
}

static void ask_many(const char *role, const char *address, enum mode mode, int count)
{
	static unsigned long long times[MAX_COUNT];
	CHECK(count > 0 && count <= MAX_COUNT);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_event_channel *passive = rdma_create_event_channel();
	CHECK(channel && passive);
	if (!strcmp(role, "beside"))
		listen_on(passive, "0.0.0.0", LISTENING_PORT);
	if (!strcmp(role, "gone"))
		CHECK_EQ(rdma_destroy_id(listen_on(passive, address, FIRST_CLOSED_PORT)), 0);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event wanted = {.events = EPOLLIN};
	CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &wanted), 0);
	for (int i = 0; i < count; i++)
		times[i] = ask(channel, mode, epoll, address, FIRST_CLOSED_PORT + i / 2 % 1000,
			       i % 2 ? RDMA_PS_UDP : RDMA_PS_TCP);
	qsort(times, count, sizeof *times, compare);
	printf("%llu %llu %llu\n", times[count / 2] / 1000, times[count - 1 - count / 100] / 1000,
	       times[count - 1] / 1000);
}

static unsigned long long processor_ms(void)
{
	struct timespec used;
	CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
	return used.tv_sec * 1000ull + used.tv_nsec / 1000000;
}

static long resident_kib(void)
{
	long total, resident;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%ld %ld", &total, &resident) == 2);
	fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char **argv)
{
	limit_time(3600);
	if (argc == 3 && !strcmp(argv[1], "hold")) {
		listen_on(rdma_create_event_channel(), argv[2], LISTENING_PORT);
		printf("ready\n");
		fflush(stdout);
		while (getchar() != EOF)
			;
	} else if (argc == 3 && !strcmp(argv[1], "numbers")) {
		check_numbers(argv[2]);
	} else if (argc == 3 && !strcmp(argv[1], "taken-back")) {
		take_back(argv[2]);
	} else if (argc == 3 && !strcmp(argv[1], "without-files")) {
		connect_without_files(argv[2]);
	} else if (argc == 3 && !strcmp(argv[1], "moved")) {
		move_listener(argv[2]);
	} else if (argc == 3 && !strcmp(argv[1], "moved-beside")) {
		move_beside_waiter(argv[2]);
	} else if (argc == 2 && !strcmp(argv[1], "listen")) {
		struct rdma_event_channel *channel = rdma_create_event_channel();
		CHECK(channel);
		long before = resident_kib();
		unsigned long long used = processor_ms();
		unsigned long long began = now();
		listen_on(channel, "0.0.0.0", LISTENING_PORT);
		unsigned long long took = now() - began;
		printf("%llu %llu %ld\n", took / 1000000, processor_ms() - used,
		       resident_kib() - before);
	} else {
		CHECK_EQ(argc, 5);
		ask_many(argv[1], argv[2], mode_of(argv[3]), atoi(argv[4]));
	}
	return 0;
}
