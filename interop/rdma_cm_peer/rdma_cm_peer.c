/* One end of a connection that librdmacm makes over the kernel's rdma_cm.
 *
 *   rdma_cm_peer server ADDRESS PORT SCRIPT
 *   rdma_cm_peer client ADDRESS PORT SCRIPT
 *
 * Scripts: `client-ends` and `server-ends` exchange a message in both directions, then that end
 * disconnects; `reject` refuses the request, which a client of any script reports.
 *
 * It prints "listening" once it listens, "rejected REASON" where the peer refuses, and "done". */

#define _GNU_SOURCE
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE = 4096 };

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

/* Waits for an event, whose identifier it returns. Another event than this one ends the program. */
static struct rdma_cm_id *await(struct rdma_event_channel *channel, enum rdma_cm_event_type expected)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(channel, &event))
		fail("rdma_get_cm_event");
	if (event->event != expected) {
		if (event->event == RDMA_CM_EVENT_REJECTED) {
			printf("rejected %d\n", event->status);
			say("done");
			exit(0);
		}
		fprintf(stderr, "%s with status %d in place of %s\n", rdma_event_str(event->event),
			event->status, rdma_event_str(expected));
		exit(1);
	}
	struct rdma_cm_id *id = event->id;
	if (expected == RDMA_CM_EVENT_CONNECT_REQUEST &&
	    (event->param.conn.private_data_len < 5 ||
	     memcmp(event->param.conn.private_data, "hello", 5) != 0)) {
		fprintf(stderr, "the request has other private data\n");
		exit(1);
	}
	if (rdma_ack_cm_event(event))
		fail("rdma_ack_cm_event");
	return id;
}

static struct addrinfo *resolved(const char *address, const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV }, *found;

	if (getaddrinfo(address, port, &hints, &found)) {
		fprintf(stderr, "%s is no address\n", address);
		exit(1);
	}
	return found;
}

static struct rdma_conn_param parameters(void)
{
	return (struct rdma_conn_param){
		.private_data = "hello",
		.private_data_len = 5,
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
}

struct buffers {
	unsigned char sent[MESSAGE], received[MESSAGE];
	struct ibv_mr *of_sent, *of_received;
};

static struct buffers *prepare(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct buffers *buffers = calloc(1, sizeof(*buffers));

	if (!buffers || rdma_create_qp(id, NULL, &init))
		fail("rdma_create_qp");
	buffers->of_sent = rdma_reg_msgs(id, buffers->sent, MESSAGE);
	buffers->of_received = rdma_reg_msgs(id, buffers->received, MESSAGE);
	if (!buffers->of_sent || !buffers->of_received)
		fail("rdma_reg_msgs");
	if (rdma_post_recv(id, NULL, buffers->received, MESSAGE, buffers->of_received))
		fail("rdma_post_recv");
	return buffers;
}

static void transfer(struct rdma_cm_id *id, struct buffers *buffers)
{
	struct ibv_wc wc;

	if (rdma_post_send(id, NULL, buffers->sent, MESSAGE, buffers->of_sent, 0))
		fail("rdma_post_send");
	if (rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
		fail("the send");
}

static void receive(struct rdma_cm_id *id)
{
	struct ibv_wc wc;

	if (rdma_get_recv_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS || wc.byte_len != MESSAGE)
		fail("the receive");
}

/* Ends the connection, as the one that begins or as the one that follows. */
static void end(struct rdma_event_channel *channel, struct rdma_cm_id *id, int begins)
{
	if (!begins)
		await(channel, RDMA_CM_EVENT_DISCONNECTED);
	if (rdma_disconnect(id))
		fail("rdma_disconnect");
	if (begins)
		await(channel, RDMA_CM_EVENT_DISCONNECTED);
	await(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

static void serve(struct rdma_event_channel *channel, struct rdma_cm_id *id, struct sockaddr *address,
		  const char *script)
{
	if (rdma_bind_addr(id, address))
		fail("rdma_bind_addr");
	if (rdma_listen(id, 4))
		fail("rdma_listen");
	say("listening");
	struct rdma_cm_id *peer = await(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (strcmp(script, "reject") == 0) {
		if (rdma_reject(peer, "go away", 7))
			fail("rdma_reject");
		return;
	}
	struct buffers *buffers = prepare(peer);
	struct rdma_conn_param response = parameters();
	if (rdma_accept(peer, &response))
		fail("rdma_accept");
	await(channel, RDMA_CM_EVENT_ESTABLISHED);
	receive(peer);
	memcpy(buffers->sent, buffers->received, MESSAGE);
	transfer(peer, buffers);
	end(channel, peer, strcmp(script, "server-ends") == 0);
}

static void connect_to(struct rdma_event_channel *channel, struct rdma_cm_id *id,
		       struct sockaddr *address, const char *script)
{
	if (rdma_resolve_addr(id, NULL, address, 5000))
		fail("rdma_resolve_addr");
	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, 5000))
		fail("rdma_resolve_route");
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	struct buffers *buffers = prepare(id);
	struct rdma_conn_param request = parameters();
	if (rdma_connect(id, &request))
		fail("rdma_connect");
	await(channel, RDMA_CM_EVENT_ESTABLISHED);
	for (int i = 0; i < MESSAGE; i++)
		buffers->sent[i] = i * 7 + i / 256;
	transfer(id, buffers);
	receive(id);
	if (memcmp(buffers->sent, buffers->received, MESSAGE) != 0) {
		fprintf(stderr, "the message came back changed\n");
		exit(1);
	}
	end(channel, id, strcmp(script, "client-ends") == 0);
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	if (argc != 5) {
		fprintf(stderr, "usage: %s server|client ADDRESS PORT SCRIPT\n", argv[0]);
		return 2;
	}
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		fail("rdma_create_id");
	struct addrinfo *address = resolved(argv[2], argv[3]);
	if (strcmp(argv[1], "server") == 0)
		serve(channel, id, address->ai_addr, argv[4]);
	else
		connect_to(channel, id, address->ai_addr, argv[4]);
	say("done");
	return 0;
}
