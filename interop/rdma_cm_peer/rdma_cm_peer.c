/* One end of a connection that librdmacm makes over the kernel's rdma_cm.
 *
 *   rdma_cm_peer server ADDRESS PORT SCRIPT MTU
 *   rdma_cm_peer client ADDRESS PORT SCRIPT MTU
 *
 * MTU is the path MTU that the connected queue pair must have.
 *
 * Scripts: `client-ends`, `server-ends` and `both-end` exchange a message in both directions, then
 * that end disconnects, or both do; `reject` refuses the request, which a client of any script
 * reports, and `reject-again` refuses two; `data-first` is `client-ends` where the server's program
 * asks whether the connection is established only after the message; `stale` is a client whose
 * queue pair asks for a second connection, which ends both; `datagram` asks for a datagram service,
 * to which the client sends one message.
 *
 * It prints "listening" once it listens, "rejected REASON" where the peer refuses, "established" in
 * the server of `data-first`, and "done". */

#define _GNU_SOURCE
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE = 4096, DATAGRAM = 1000, GRH = 40 };

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
static struct rdma_cm_id *await_with(struct rdma_event_channel *channel,
				     enum rdma_cm_event_type expected, struct rdma_ud_param *datagram)
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
	if (datagram)
		*datagram = event->param.ud;
	if (rdma_ack_cm_event(event))
		fail("rdma_ack_cm_event");
	return id;
}

static struct rdma_cm_id *await(struct rdma_event_channel *channel, enum rdma_cm_event_type expected)
{
	return await_with(channel, expected, NULL);
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

static struct buffers *prepare(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
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

static void receive(struct rdma_cm_id *id, unsigned int length)
{
	struct ibv_wc wc;

	if (rdma_get_recv_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS || wc.byte_len != length)
		fail("the receive");
}

static void fill(struct buffers *buffers)
{
	for (int i = 0; i < MESSAGE; i++)
		buffers->sent[i] = i * 7 + i / 256;
}

/* Receives a datagram, which has the bytes that `fill` writes. */
static void receive_datagram(struct rdma_cm_id *id, struct buffers *buffers)
{
	receive(id, GRH + DATAGRAM);
	fill(buffers);
	if (memcmp(buffers->sent, buffers->received + GRH, DATAGRAM) != 0) {
		fprintf(stderr, "the datagram has other bytes\n");
		exit(1);
	}
}

/* Asks for the queue pair of a datagram service, and sends it a datagram. */
static void send_datagram(struct rdma_event_channel *channel, struct rdma_cm_id *id,
			  struct buffers *buffers)
{
	struct rdma_conn_param request = { .private_data = "hello", .private_data_len = 5 };
	struct rdma_ud_param peer;
	struct ibv_wc wc;

	if (rdma_connect(id, &request))
		fail("rdma_connect");
	await_with(channel, RDMA_CM_EVENT_ESTABLISHED, &peer);
	struct ibv_ah *ah = ibv_create_ah(id->pd, &peer.ah_attr);
	if (!ah)
		fail("ibv_create_ah");
	fill(buffers);
	if (peer.qkey != RDMA_UDP_QKEY ||
	    rdma_post_ud_send(id, NULL, buffers->sent, DATAGRAM, buffers->of_sent, 0, ah, peer.qp_num))
		fail("rdma_post_ud_send");
	if (rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
		fail("the send");
}

/* Ends the program unless the queue pair has this path MTU. */
static void check_mtu(struct rdma_cm_id *id, const char *expected)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	if (ibv_query_qp(id->qp, &attr, IBV_QP_PATH_MTU, &init))
		fail("ibv_query_qp");
	if (128 << attr.path_mtu != atoi(expected)) {
		fprintf(stderr, "the path MTU is %d in place of %s\n", 128 << attr.path_mtu, expected);
		exit(1);
	}
}

/* Disconnects at the same time as the peer. */
static void end_both(struct rdma_event_channel *channel, struct rdma_cm_id *id)
{
	if (rdma_disconnect(id))
		fail("rdma_disconnect");
	await(channel, RDMA_CM_EVENT_DISCONNECTED);
	/* If the peer's DREQ came before the answer to ours, the kernel answers it only now. */
	rdma_disconnect(id);
	await(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
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
		  const char *script, const char *mtu)
{
	if (rdma_bind_addr(id, address))
		fail("rdma_bind_addr");
	if (rdma_listen(id, 4))
		fail("rdma_listen");
	say("listening");
	struct rdma_cm_id *peer = await(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	int rejects = strcmp(script, "reject") == 0 ? 1 : strcmp(script, "reject-again") == 0 ? 2 : 0;
	for (int left = rejects; left > 0; left--) {
		if (rdma_reject(peer, "go away", 7))
			fail("rdma_reject");
		if (left > 1)
			peer = await(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	}
	if (rejects > 0)
		return;
	int is_datagram = strcmp(script, "datagram") == 0;
	struct buffers *buffers = prepare(peer, is_datagram ? IBV_QPT_UD : IBV_QPT_RC);
	struct rdma_conn_param response = parameters();
	response.qp_num = peer->qp->qp_num;
	if (rdma_accept(peer, &response))
		fail("rdma_accept");
	if (is_datagram) {
		receive_datagram(peer, buffers);
		return;
	}
	check_mtu(peer, mtu);
	int is_data_first = strcmp(script, "data-first") == 0;
	if (!is_data_first)
		await(channel, RDMA_CM_EVENT_ESTABLISHED);
	receive(peer, MESSAGE);
	memcpy(buffers->sent, buffers->received, MESSAGE);
	transfer(peer, buffers);
	if (is_data_first) {
		await(channel, RDMA_CM_EVENT_ESTABLISHED);
		say("established");
	}
	if (strcmp(script, "both-end") == 0)
		end_both(channel, peer);
	else
		end(channel, peer, strcmp(script, "server-ends") == 0);
}

static void resolve(struct rdma_event_channel *channel, struct rdma_cm_id *id,
		    struct sockaddr *address)
{
	if (rdma_resolve_addr(id, NULL, address, 5000))
		fail("rdma_resolve_addr");
	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, 5000))
		fail("rdma_resolve_route");
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* Asks for a second connection of a connected queue pair. The peer takes the first for forgotten: it
 * refuses the second with the reason 10, and disconnects the first. */
static void connect_again(struct rdma_event_channel *channel, struct rdma_cm_id *first,
			  struct sockaddr *address)
{
	struct rdma_cm_id *second;
	struct rdma_conn_param request = parameters();

	if (rdma_create_id(channel, &second, NULL, RDMA_PS_TCP))
		fail("rdma_create_id");
	resolve(channel, second, address);
	request.qp_num = first->qp->qp_num;
	if (rdma_connect(second, &request))
		fail("rdma_connect");
	for (int seen = 0; seen != 3;) {
		struct rdma_cm_event *event;
		if (rdma_get_cm_event(channel, &event))
			fail("rdma_get_cm_event");
		if (event->id == second && event->event == RDMA_CM_EVENT_REJECTED && event->status == 10)
			seen |= 1;
		else if (event->id == first && event->event == RDMA_CM_EVENT_DISCONNECTED)
			seen |= 2;
		else {
			fprintf(stderr, "%s with status %d of the %s connection\n",
				rdma_event_str(event->event), event->status,
				event->id == first ? "first" : "second");
			exit(1);
		}
		rdma_ack_cm_event(event);
	}
	if (rdma_disconnect(first))
		fail("rdma_disconnect");
	await(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

static void connect_to(struct rdma_event_channel *channel, struct rdma_cm_id *id,
		       struct sockaddr *address, const char *script, const char *mtu)
{
	resolve(channel, id, address);
	if (strcmp(script, "datagram") == 0) {
		send_datagram(channel, id, prepare(id, IBV_QPT_UD));
		return;
	}
	struct buffers *buffers = prepare(id, IBV_QPT_RC);
	struct rdma_conn_param request = parameters();
	if (rdma_connect(id, &request))
		fail("rdma_connect");
	await(channel, RDMA_CM_EVENT_ESTABLISHED);
	check_mtu(id, mtu);
	fill(buffers);
	transfer(id, buffers);
	receive(id, MESSAGE);
	if (memcmp(buffers->sent, buffers->received, MESSAGE) != 0) {
		fprintf(stderr, "the message came back changed\n");
		exit(1);
	}
	if (strcmp(script, "both-end") == 0)
		end_both(channel, id);
	else if (strcmp(script, "stale") == 0)
		connect_again(channel, id, address);
	else
		end(channel, id,
		    strcmp(script, "client-ends") == 0 || strcmp(script, "data-first") == 0);
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	if (argc != 6) {
		fprintf(stderr, "usage: %s server|client ADDRESS PORT SCRIPT MTU\n", argv[0]);
		return 2;
	}
	enum rdma_port_space space = strcmp(argv[4], "datagram") == 0 ? RDMA_PS_UDP : RDMA_PS_TCP;
	if (!channel || rdma_create_id(channel, &id, NULL, space))
		fail("rdma_create_id");
	struct addrinfo *address = resolved(argv[2], argv[3]);
	if (strcmp(argv[1], "server") == 0)
		serve(channel, id, address->ai_addr, argv[4], argv[5]);
	else
		connect_to(channel, id, address->ai_addr, argv[4], argv[5]);
	say("done");
	return 0;
}
