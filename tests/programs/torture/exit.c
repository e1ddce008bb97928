/* A process that ends while a peer writes into its memory. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "torture.h"

#define LENGTH (256 * 1024)
#define EXIT_CODE 23


static void send_address(int socket, struct address address)
{
	CHECK_EQ(write(socket, &address, sizeof(address)), sizeof(address));
}

static struct address receive_address(int socket)
{
	struct address address;
	CHECK_EQ(read(socket, &address, sizeof(address)), sizeof(address));
	return address;
}

/* Writes into the memory of the other process until that is gone, and ends. */
static void write_until_the_peer_is_gone(int socket)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, LENGTH, 64);
	struct ibv_qp *qp = make_qp(&endpoint, 16);
	send_address(socket, address_of(&endpoint, qp));
	struct address peer = receive_address(socket);
	/* A dead peer is noticed in some 100 ms; a tool makes living ones slow. */
	int timeout = getenv("FEW_ROUNDS") ? 17 : 12;
	connect_qp_with(qp, &endpoint, &peer.gid, peer.qpn, timeout, 5);
	fill(endpoint.buffer, LENGTH, 5);
	int successes = 0;
	struct ibv_wc completion = {.status = IBV_WC_SUCCESS};
	for (int i = 0; i < 8; i++)
		CHECK_EQ(post_rdma(qp, &endpoint, IBV_WR_RDMA_WRITE, 0, LENGTH, peer.buffer,
				   peer.rkey, i),
			 0);
	while (completion.status == IBV_WC_SUCCESS) {
		completion = next_completion(endpoint.cq);
		if (completion.status != IBV_WC_SUCCESS)
			break;
		successes++;
		CHECK_EQ(post_rdma(qp, &endpoint, IBV_WR_RDMA_WRITE, 0, LENGTH, peer.buffer,
				   peer.rkey, 9),
			 0);
	}
	/* No answer comes any more, or the answer that nothing is there. */
	CHECK(completion.status == IBV_WC_RETRY_EXC_ERR ||
	      completion.status == IBV_WC_REM_ACCESS_ERR ||
	      completion.status == IBV_WC_REM_INV_REQ_ERR);
	CHECK(successes > 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	close_endpoint(&endpoint);
}

/* The memory that the peer writes into. It is unmapped while the process ends. */
static void *memory;

static void unmap_memory(void)
{
	munmap(memory, LENGTH);
	/* The peer writes on for a while. */
	usleep(50000);
}

/* What no destructor of the program would survive: memory that is written to by a library that has ended. */
static void check_memory(void)
{
	volatile unsigned char *bytes = memory;
	memset(memory, 0x77, LENGTH);
	usleep(20000);
	for (int i = 0; i < LENGTH; i++)
		if (bytes[i] != 0x77)
			_exit(EXIT_CODE + 1);
}

/* Opens a device, lets the peer write into its memory and returns when it does. */
static struct endpoint *become_a_target(int socket)
{
	memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	/* Registered before the device is opened, so that it runs after the library's functions, as
	 * the destructors of a program's static objects do. */
	CHECK_EQ(atexit(unmap_memory), 0);
	CHECK_EQ(atexit(check_memory), 0);
	static struct endpoint endpoint;
	open_endpoint(&endpoint, 4096, 64);
	struct ibv_mr *mr = ibv_reg_mr(endpoint.pd, memory, LENGTH,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	struct ibv_qp *qp = make_qp(&endpoint, 16);
	struct address peer = receive_address(socket);
	connect_qp(qp, &endpoint, &peer.gid, peer.qpn);
	struct address own = address_of(&endpoint, qp);
	own.rkey = mr->rkey;
	own.buffer = (uintptr_t)memory;
	send_address(socket, own);
	volatile unsigned char *last = (unsigned char *)memory + LENGTH - 1;
	while (!*last)
		sched_yield();
	return &endpoint;
}

static _Noreturn void end_the_main_thread(int socket)
{
	become_a_target(socket);
	/* As if main returned: the functions of atexit run in this thread. */
	exit(EXIT_CODE);
}

static void *exit_now(void *unused)
{
	(void)unused;
	exit(EXIT_CODE);
}

static _Noreturn void exit_in_another_thread(int socket)
{
	become_a_target(socket);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, exit_now, NULL), 0);
	for (;;)
		pause();
}

static volatile sig_atomic_t is_signalled;

static void note(int signal)
{
	(void)signal;
	is_signalled = 1;
}

static _Noreturn void exit_when_signalled(int socket)
{
	signal(SIGTERM, note);
	become_a_target(socket);
	CHECK_EQ(kill(getpid(), SIGTERM), 0);
	while (!is_signalled)
		pause();
	exit(EXIT_CODE);
}

static int round_now;

static void exit_now_in_handler(int signal)
{
	(void)signal;
	exit(EXIT_CODE);
}

/* Exits in a handler that interrupts a call, mostly: one that opens a device, or one that polls it. */
static _Noreturn void exit_in_the_middle_of_a_call(int socket)
{
	struct endpoint *endpoint = become_a_target(socket);
	struct ibv_wc completion;
	CHECK(signal(SIGALRM, exit_now_in_handler) != SIG_ERR);
	struct itimerval timer = {.it_value.tv_usec = 2000 + 137 * round_now};
	CHECK_EQ(setitimer(ITIMER_REAL, &timer, NULL), 0);
	for (;;) {
		if (round_now % 4 == 3)
			CHECK_EQ(ibv_poll_cq(endpoint->cq, 1, &completion), 0);
		else
			CHECK_EQ(ibv_close_device(open_device()), 0);
	}
}

static void exit_while_written_to(void (*end)(int), int count)
{
	for (int round = 0; round < count; round++) {
		round_now = round;
		int sockets[2];
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
		pid_t target = fork();
		CHECK(target >= 0);
		if (target == 0) {
			limit_time(30);
			end(sockets[0]);
		}
		pid_t writer = fork();
		CHECK(writer >= 0);
		if (writer == 0) {
			limit_time(30);
			write_until_the_peer_is_gone(sockets[1]);
			_exit(0);
		}
		close(sockets[0]);
		close(sockets[1]);
		int status = -1;
		CHECK_EQ(waitpid(target, &status, 0), target);
		if (WIFSIGNALED(status))
			check_unequal(__FILE__, __LINE__, "signal that ended the target",
				      WTERMSIG(status), 0);
		CHECK_EQ(WEXITSTATUS(status), EXIT_CODE);
		expect_success_of(writer);
	}
}

void exit_in_the_main_thread(void)
{
	exit_while_written_to(end_the_main_thread, rounds(5));
}

void exit_in_a_thread(void)
{
	exit_while_written_to(exit_in_another_thread, rounds(5));
}

void exit_after_a_signal(void)
{
	exit_while_written_to(exit_when_signalled, rounds(5));
}

void exit_in_a_call(void)
{
	exit_while_written_to(exit_in_the_middle_of_a_call, rounds(24));
}
