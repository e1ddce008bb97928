/* Requests on memory that is lost. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "absent.h"
#include "check.h"

#define PAGE 4096

bool driver_executes;

struct operation {
	const char *name;
	enum ibv_wr_opcode opcode;
	/* The lost memory is the responder's, and otherwise the requester's. */
	bool is_remote;
	/* The access to the lost memory writes it. */
	bool writes;
};

static const struct operation operations[] = {
	{"write to", IBV_WR_RDMA_WRITE, true, true},
	{"write with immediate to", IBV_WR_RDMA_WRITE_WITH_IMM, true, true},
	{"read from", IBV_WR_RDMA_READ, true, false},
	{"compare and swap of", IBV_WR_ATOMIC_CMP_AND_SWP, true, true},
	{"fetch and add of", IBV_WR_ATOMIC_FETCH_AND_ADD, true, true},
	{"send into", IBV_WR_SEND, true, true},
	{"write from", IBV_WR_RDMA_WRITE, false, false},
	{"read into", IBV_WR_RDMA_READ, false, true},
	{"compare and swap into", IBV_WR_ATOMIC_CMP_AND_SWP, false, true},
	{"fetch and add into", IBV_WR_ATOMIC_FETCH_AND_ADD, false, true},
	{"send from", IBV_WR_SEND, false, false},
};

static bool is_atomic(const struct operation *operation)
{
	return operation->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       operation->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool takes_receive(const struct operation *operation)
{
	return operation->opcode == IBV_WR_SEND || operation->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static struct ibv_wc await(struct endpoint *endpoint)
{
	struct ibv_wc completion;
	struct ibv_cq *cq;
	void *context;
	if (!driver_executes)
		return next_completion(endpoint->cq);
	for (;;) {
		struct pollfd channel = {.fd = endpoint->channel->fd, .events = POLLIN};
		int count = ibv_poll_cq(endpoint->cq, 1, &completion);
		CHECK(count >= 0);
		if (count)
			return completion;
		/* The driver thread executes what comes while this thread sleeps in the kernel. */
		if (poll(&channel, 1, 100) > 0) {
			CHECK_EQ(ibv_get_cq_event(endpoint->channel, &cq, &context), 0);
			ibv_ack_cq_events(cq, 1);
			CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		}
	}
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attributes;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init), 0);
	return attributes.qp_state;
}

/* Runs one operation, and returns whether it did what the table of docs/memory.md says. */
static void run_operation(const struct operation *operation, enum loss loss)
{
	struct endpoint endpoint;
	struct memory memory;
	struct ibv_send_wr *bad;
	struct ibv_recv_wr *bad_recv;
	struct ibv_wc completion, sent = {0}, received = {0};
	open_endpoint(&endpoint, 3 * MESSAGE, 64);
	make_memory(&memory, &endpoint, loss);
	struct connection connection = connect_to_self(&endpoint, 8);
	CHECK_EQ(ibv_req_notify_cq(endpoint.cq, 0), 0);
	fill(endpoint.buffer, MESSAGE, 7);
	unsigned length = is_atomic(operation) ? 8 : MESSAGE;
	/* An atomic is on a word of the lost page, a message begins before it. */
	size_t offset = loss == NO_HUGE_PAGE ? 0 : is_atomic(operation) ? PAGE : 64;
	struct ibv_sge lost = {(uintptr_t)memory.at + offset, length, memory.mr->lkey};
	struct ibv_sge sound = {(uintptr_t)endpoint.buffer, length, endpoint.mr->lkey};
	struct ibv_sge *local = operation->is_remote ? &sound : &lost;
	struct ibv_sge *remote = operation->is_remote ? &lost : &sound;
	struct ibv_recv_wr receive = {.wr_id = 88, .sg_list = remote, .num_sge = 1};
	struct ibv_send_wr request = {.wr_id = 5, .sg_list = local, .num_sge = 1};
	request.opcode = operation->opcode;
	request.send_flags = IBV_SEND_SIGNALED;
	if (is_atomic(operation)) {
		request.wr.atomic.remote_addr = remote->addr;
		request.wr.atomic.rkey = remote->lkey;
	} else {
		request.wr.rdma.remote_addr = remote->addr;
		request.wr.rdma.rkey = remote->lkey;
	}
	if (takes_receive(operation))
		CHECK_EQ(ibv_post_recv(connection.right, &receive, &bad_recv), 0);
	lose(&memory, loss);
	CHECK_EQ(ibv_post_send(connection.left, &request, &bad), 0);

	bool fails = loss != GIVEN_BACK && (loss != READ_ONLY || operation->writes);
	bool has_received = takes_receive(operation) && (!fails || operation->is_remote);
	for (int left = 1 + has_received; left > 0; left--) {
		completion = await(&endpoint);
		*(completion.wr_id == 5 ? &sent : &received) = completion;
	}
	enum ibv_wc_status of_request = !fails		      ? IBV_WC_SUCCESS
					: operation->is_remote ? IBV_WC_REM_OP_ERR
							       : IBV_WC_LOC_PROT_ERR;
	CHECK_EQ(sent.wr_id, 5);
	CHECK_EQ(sent.status, of_request);
	if (has_received && operation->opcode == IBV_WR_SEND)
		CHECK_EQ(received.status, fails ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
	else if (has_received)
		CHECK_EQ(received.status, fails ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
	CHECK_EQ(state_of(connection.left), fails ? IBV_QPS_ERR : IBV_QPS_RTS);
	CHECK_EQ(state_of(connection.right),
		 fails && operation->is_remote ? IBV_QPS_ERR : IBV_QPS_RTS);
	if (fails && operation->is_remote && operation->opcode != IBV_WR_SEND) {
		/* No completion tells the responder's program. */
		struct ibv_async_event event;
		CHECK_EQ(get_object_event(endpoint.context, &event), 0);
		CHECK_EQ(event.event_type, IBV_EVENT_QP_FATAL);
		CHECK(event.element.qp == connection.right);
		ibv_ack_async_event(&event);
	}
	if (!fails && operation->writes && !is_atomic(operation))
		CHECK(is_filled((unsigned char *)lost.addr, length, 7));
	if (!fails && !operation->writes) {
		/* READ_ONLY keeps the ones of before, GIVEN_BACK has zeros in the page. */
		unsigned char *seen = endpoint.buffer;
		CHECK_EQ(seen[PAGE - 65], 1);
		CHECK_EQ(seen[PAGE - 64], loss == READ_ONLY);
		CHECK_EQ(seen[2 * PAGE - 65], loss == READ_ONLY);
		CHECK_EQ(seen[2 * PAGE - 64], 1);
	}
	disconnect(&connection);
	free_memory(&memory);
	close_endpoint(&endpoint);
}

struct beside {
	atomic_bool is_over;
	int transfers;
};

/* Transfers messages on a device object of its own, until it is told and 1000 are done. */
static void *transfer_beside(void *argument)
{
	struct beside *beside = argument;
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * MESSAGE, 64);
	struct connection connection = connect_to_self(&endpoint, 16);
	while (!beside->is_over || beside->transfers < 1000)
		transfer(&endpoint, &connection, MESSAGE, beside->transfers++);
	disconnect(&connection);
	close_endpoint(&endpoint);
	return NULL;
}

void run_operations(enum loss loss)
{
	struct beside beside = {0};
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, transfer_beside, &beside), 0);
	for (int mode = 0; mode < 2; mode++) {
		driver_executes = mode == 1;
		for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
			printf("%s memory of loss %d, executed by %s\n", operations[i].name, loss,
			       driver_executes ? "the driver thread" : "any thread");
			run_operation(&operations[i], loss);
		}
	}
	beside.is_over = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(beside.transfers >= 1000);
}
