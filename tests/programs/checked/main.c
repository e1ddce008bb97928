/* A server and a client that exchange messages by each kind of request, for tools that watch a program:
 * without an argument the server, with its address the client, with "alone" both ends at once. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"

enum { PORT = 18515, LENGTH = 20000, ROUNDS = 20, WORDS = 3 * LENGTH };

/* Takes turns with the other end: reads or writes whole values. */
static void give(int fd, const void *value, size_t length)
{
	CHECK_EQ(write(fd, value, length), length);
}

static void take(int fd, void *value, size_t length)
{
	for (size_t got = 0; got < length;) {
		ssize_t more = read(fd, (char *)value + got, length - got);
		CHECK(more > 0);
		got += more;
	}
}

static int listen_for_peer(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int listener = socket(AF_INET, SOCK_STREAM, 0), peer;
	CHECK_EQ(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
	CHECK_EQ(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	CHECK_EQ(listen(listener, 1), 0);
	CHECK((peer = accept(listener, NULL, NULL)) >= 0);
	close(listener);
	return peer;
}

static int call_peer(const char *name)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int peer;
	CHECK_EQ(inet_pton(AF_INET, name, &address.sin_addr), 1);
	for (int i = 0; i < 1000; i++, usleep(10000)) {
		CHECK((peer = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
		if (connect(peer, (struct sockaddr *)&address, sizeof(address)) == 0)
			return peer;
		close(peer);
	}
	check_failed(__FILE__, __LINE__, "the server listens");
}

static int post_word(struct ibv_qp *qp, struct endpoint *endpoint, const struct address *to)
{
	struct ibv_sge sge = {(uintptr_t)endpoint->buffer + WORDS, 8, endpoint->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.atomic = {.remote_addr = to->buffer + WORDS + 8,
					       .compare_add = 1,
					       .rkey = to->rkey}};
	struct ibv_send_wr *refused;
	return ibv_post_send(qp, &wr, &refused);
}

static void expect_successes(struct endpoint *endpoint, int count)
{
	while (count--)
		CHECK_EQ(next_completion(endpoint->cq).status, IBV_WC_SUCCESS);
}

/* One end. The client writes, sends, reads back what it wrote, and counts; the server compares. */
static void exchange(int fd, int is_client)
{
	struct endpoint endpoint;
	struct address own, other;
	open_endpoint(&endpoint, WORDS + 16, 64);
	struct ibv_qp *qp = make_qp(&endpoint, 16);
	own = address_of(&endpoint, qp);
	give(fd, &own, sizeof(own));
	take(fd, &other, sizeof(other));
	connect_qp(qp, &endpoint, &other.gid, other.qpn);
	for (int i = 0; i < ROUNDS; i++) {
		char turn = 1;
		if (!is_client) {
			CHECK_EQ(post_recv(qp, &endpoint, LENGTH, LENGTH, i), 0);
			give(fd, &turn, 1);
			expect_successes(&endpoint, 1);
			CHECK(is_filled(endpoint.buffer + LENGTH, LENGTH, i));
			CHECK(is_filled(endpoint.buffer + 2 * LENGTH, LENGTH, i));
			take(fd, &turn, 1);
			continue;
		}
		/* Messages may have bytes that the program has not set, such as padding. */
		unsigned char *message = malloc(LENGTH + 64);
		struct ibv_mr *mr = ibv_reg_mr(endpoint.pd, message, LENGTH + 64, 0);
		CHECK(mr);
		fill(message, LENGTH, i);
		struct ibv_sge sge = {(uintptr_t)message, LENGTH, mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {other.buffer + 2 * LENGTH, other.rkey}};
		struct ibv_send_wr padding = wr, *refused;
		struct ibv_sge rest = {(uintptr_t)message + LENGTH, 64, mr->lkey};
		padding.sg_list = &rest;
		padding.wr.rdma.remote_addr = other.buffer;
		take(fd, &turn, 1);
		if (getenv("SEND_PADDING")) {
			CHECK_EQ(ibv_post_send(qp, &padding, &refused), 0);
			expect_successes(&endpoint, 1);
		}
		CHECK_EQ(ibv_post_send(qp, &wr, &refused), 0);
		wr.opcode = IBV_WR_SEND;
		CHECK_EQ(ibv_post_send(qp, &wr, &refused), 0);
		CHECK_EQ(post_rdma(qp, &endpoint, IBV_WR_RDMA_READ, LENGTH, LENGTH,
				   other.buffer + 2 * LENGTH, other.rkey, 1), 0);
		CHECK_EQ(post_word(qp, &endpoint, &other), 0);
		expect_successes(&endpoint, 4);
		CHECK(is_filled(endpoint.buffer + LENGTH, LENGTH, i));
		uint64_t count;
		memcpy(&count, endpoint.buffer + WORDS, 8);
		CHECK_EQ(count, i);
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		free(message);
		give(fd, &turn, 1);
	}
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_endpoint(&endpoint);
	close(fd);
}

static void *serve(void *fd)
{
	exchange((int)(intptr_t)fd, 0);
	return NULL;
}

int main(int argc, char **argv)
{
	limit_time(120);
	if (argc < 2) {
		exchange(listen_for_peer(), 0);
	} else if (strcmp(argv[1], "alone")) {
		exchange(call_peer(argv[1]), 1);
	} else {
		int ends[2];
		pthread_t server;
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
		CHECK_EQ(pthread_create(&server, NULL, serve, (void *)(intptr_t)ends[0]), 0);
		exchange(ends[1], 1);
		CHECK_EQ(pthread_join(server, NULL), 0);
	}
	puts("all messages are right");
	return 0;
}
