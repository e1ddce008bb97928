/* A server that accepts in one thread while another waits for events, as rping does, and its client in a process
 * of its own. Arguments: ADDRESS COUNT, with the number of connections, one after the other. */
#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "check.h"

enum { PORT = 7002 };

static struct sockaddr_in address = {.sin_family = AF_INET};

static struct ibv_qp_init_attr capacities(void)
{
	return (struct ibv_qp_init_attr){.qp_type = IBV_QPT_RC,
					 .cap = {.max_send_wr = 1, .max_recv_wr = 1,
						 .max_send_sge = 1, .max_recv_sge = 1}};
}

static struct rdma_cm_id *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	CHECK_EQ(event->event, type);
	struct rdma_cm_id *id = event->id;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	return id;
}

static void ask(int count)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel);
	for (int i = 0; i < count; i++) {
		struct rdma_conn_param parameters = {.retry_count = 7};
		struct ibv_qp_init_attr init = capacities();
		struct rdma_cm_id *id;
		CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
		CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 5000), 0);
		next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK_EQ(rdma_resolve_route(id, 5000), 0);
		next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
		CHECK_EQ(rdma_create_qp(id, NULL, &init), 0);
		CHECK_EQ(rdma_connect(id, &parameters), 0);
		next(channel, RDMA_CM_EVENT_ESTABLISHED);
		CHECK_EQ(rdma_disconnect(id), 0);
		next(channel, RDMA_CM_EVENT_DISCONNECTED);
		rdma_destroy_qp(id);
		CHECK_EQ(rdma_destroy_id(id), 0);
	}
	rdma_destroy_event_channel(channel);
}

static sem_t requested, established, disconnected;
static struct rdma_cm_id *asked;

static void *wait_for_events(void *argument)
{
	struct rdma_event_channel *channel = argument;
	for (;;) {
		struct rdma_cm_event *event;
		CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
		enum rdma_cm_event_type type = event->event;
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			asked = event->id;
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			CHECK_EQ(sem_post(&requested), 0);
		if (type == RDMA_CM_EVENT_ESTABLISHED)
			CHECK_EQ(sem_post(&established), 0);
		if (type == RDMA_CM_EVENT_DISCONNECTED)
			CHECK_EQ(sem_post(&disconnected), 0);
	}
	return NULL;
}

static void wait_for(sem_t *event)
{
	struct timespec limit;
	CHECK_EQ(clock_gettime(CLOCK_REALTIME, &limit), 0);
	limit.tv_sec += 20;
	CHECK_EQ(sem_timedwait(event, &limit), 0);
}

static void serve(int count, int ready)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	pthread_t thread;
	CHECK(channel);
	CHECK_EQ(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(listener, (struct sockaddr *)&address), 0);
	CHECK_EQ(rdma_listen(listener, 8), 0);
	CHECK_EQ(pthread_create(&thread, NULL, wait_for_events, channel), 0);
	/* On one processor, all others go first: they are there before the call that accepts has returned. */
	CHECK_EQ(setpriority(PRIO_PROCESS, syscall(SYS_gettid), 19), 0);
	CHECK_EQ(write(ready, "r", 1), 1);
	for (int i = 0; i < count; i++) {
		struct rdma_conn_param parameters = {0};
		struct ibv_qp_init_attr init = capacities();
		wait_for(&requested);
		struct rdma_cm_id *id = asked;
		CHECK_EQ(rdma_create_qp(id, NULL, &init), 0);
		CHECK_EQ(rdma_accept(id, &parameters), 0);
		wait_for(&established);
		wait_for(&disconnected);
		rdma_destroy_qp(id);
		CHECK_EQ(rdma_destroy_id(id), 0);
	}
}

int main(int argc, char **argv)
{
	int ready[2], status;
	char byte;
	cpu_set_t one;
	CHECK_EQ(argc, 3);
	CHECK_EQ(sched_getaffinity(0, sizeof one, &one), 0);
	for (int i = 0, seen = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &one) && seen++)
			CPU_CLR(i, &one);
	CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
	int count = atoi(argv[2]);
	address.sin_port = htons(PORT);
	CHECK_EQ(inet_pton(AF_INET, argv[1], &address.sin_addr), 1);
	CHECK(sem_init(&requested, 0, 0) == 0 && sem_init(&established, 0, 0) == 0);
	CHECK_EQ(sem_init(&disconnected, 0, 0), 0);
	CHECK_EQ(pipe(ready), 0);
	pid_t client = fork();
	CHECK(client >= 0);
	if (client == 0) {
		CHECK_EQ(close(ready[1]), 0);
		/* None comes where the server has failed. */
		if (read(ready[0], &byte, 1) == 1)
			ask(count);
		_exit(0);
	}
	serve(count, ready[1]);
	CHECK_EQ(waitpid(client, &status, 0), client);
	CHECK_EQ(status, 0);
	/* The other thread still waits. */
	_exit(0);
}
