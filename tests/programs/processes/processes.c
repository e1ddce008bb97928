/* Several processes on one address, of which one is killed again and again while all transfer.
 *
 * Two survivors echo each other's messages, and both serve a third process, the victim, which is
 * killed at a random moment. Each message is compared with what it must be. A survivor may see
 * failed requests of its connection to the victim alone. */
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"

enum { LENGTH = 24 * 1024, SURVIVORS = 2, DEPTH = 4 };

/* In place of a victim's number, where both ends are survivors. */
#define FOR_EVER INT_MAX

/* How two ends of a connection exchange their addresses. */
struct meeting {
	struct address addresses[2];
	atomic_int are_set[2];
};

/* The memory that all processes share. */
struct board {
	atomic_bool is_over;
	/* Number of the victim that lives now. */
	atomic_int victim;
	struct meeting of_survivors;
	/* Connections of the present victim: to each survivor. */
	struct meeting of_victim[SURVIVORS];
	/* Messages that were compared. */
	atomic_long between_survivors;
	atomic_long with_victims[SURVIVORS];
	atomic_long of_victims;
	/* Victims whose end a survivor has seen. */
	atomic_long ends_seen[SURVIVORS];
};

static struct board *board;

/* Makes the address of this end known and waits for the other end. Returns false if the other one
 * is a victim that was replaced meanwhile. */
static bool meet(struct meeting *meeting, int end, struct address own, struct address *other,
		 int victim)
{
	meeting->addresses[end] = own;
	meeting->are_set[end] = victim;
	while (meeting->are_set[1 - end] != victim) {
		if (board->is_over || board->victim > victim)
			return false;
		sched_yield();
	}
	*other = meeting->addresses[1 - end];
	return true;
}

/* One end of a connection: it sends a message, and the other end sends it back. Messages carry the
 * number of the round, so that an old one shows. */
struct talk {
	struct endpoint *endpoint;
	struct ibv_qp *qp;
	/* Parts of the buffer: what is sent, and what is received. */
	size_t out, in;
	unsigned round;
	/* Completions of the present round that are missing. */
	int missing;
	bool has_failed;
};

static void start_round(struct talk *talk, bool speaks_first)
{
	struct endpoint *endpoint = talk->endpoint;
	talk->round++;
	memset(endpoint->buffer + talk->in, 0xee, LENGTH);
	int posted = post_recv(talk->qp, endpoint, talk->in, LENGTH, 1);
	CHECK_EQ(posted, 0);
	talk->missing = 2;
	if (speaks_first) {
		fill(endpoint->buffer + talk->out, LENGTH, talk->round);
		CHECK_EQ(post_send(talk->qp, endpoint, talk->out, LENGTH, 2), 0);
	}
}

/* Sends back what was received. */
static void answer(struct talk *talk)
{
	memcpy(talk->endpoint->buffer + talk->out, talk->endpoint->buffer + talk->in, LENGTH);
	CHECK_EQ(post_send(talk->qp, talk->endpoint, talk->out, LENGTH, 2), 0);
}

/* Takes completions of two talks that share a queue. */
static void take_completions(struct endpoint *endpoint, struct talk *talks, int count,
			     bool speaks_first)
{
	struct ibv_wc completions[DEPTH];
	int found = ibv_poll_cq(endpoint->cq, DEPTH, completions);
	CHECK(found >= 0);
	if (found == 0)
		sched_yield();
	for (int i = 0; i < found; i++) {
		struct talk *talk = NULL;
		for (int j = 0; j < count; j++)
			if (talks[j].qp && talks[j].qp->qp_num == completions[i].qp_num)
				talk = &talks[j];
		if (!talk)
			continue;
		if (completions[i].status != IBV_WC_SUCCESS) {
			talk->has_failed = true;
			continue;
		}
		talk->missing--;
		if (completions[i].wr_id == 1) {
			CHECK_EQ(completions[i].byte_len, LENGTH);
			CHECK(is_filled(endpoint->buffer + talk->in, LENGTH, talk->round));
			if (!speaks_first)
				answer(talk);
		}
	}
}

/* Connects so that a dead peer is noticed in some 50 ms. */
static bool connect_talk(struct talk *talk, struct endpoint *endpoint, struct meeting *meeting,
			 int end, size_t part, int victim, int timeout)
{
	struct address other;
	*talk = (struct talk){.endpoint = endpoint,
			      .qp = make_qp(endpoint, DEPTH),
			      .out = 2 * part * LENGTH,
			      .in = (2 * part + 1) * LENGTH};
	if (!meet(meeting, end, address_of(endpoint, talk->qp), &other, victim)) {
		CHECK_EQ(ibv_destroy_qp(talk->qp), 0);
		talk->qp = NULL;
		return false;
	}
	connect_qp_with(talk->qp, endpoint, &other.gid, other.qpn, timeout, 7);
	return true;
}

static void survive(int number)
{
	struct endpoint endpoint;
	struct talk talks[2] = {{.qp = NULL}, {.qp = NULL}};
	struct talk *other = &talks[0], *victim = &talks[1];
	int served = 0;
	open_endpoint(&endpoint, 4 * LENGTH, 256);
	CHECK(connect_talk(other, &endpoint, &board->of_survivors, number, 0, FOR_EVER, 17));
	/* Survivor 0 speaks first; both speak first to the victim. */
	bool speaks_first = number == 0;
	start_round(other, speaks_first);
	while (!board->is_over) {
		if (!victim->qp && board->victim > served) {
			served = board->victim;
			/* Nothing waits for a victim that may be dead, except the other survivor. */
			connect_talk(victim, &endpoint, &board->of_victim[number], 0, 1, served, 12);
			if (victim->qp)
				start_round(victim, speaks_first);
		}
		take_completions(&endpoint, talks, 2, speaks_first);
		CHECK(!other->has_failed);
		if (other->missing == 0) {
			if (speaks_first)
				board->between_survivors++;
			start_round(other, speaks_first);
		}
		if (victim->qp && (victim->has_failed || board->victim > served)) {
			/* What it had in flight is flushed by destroying the queue pair. */
			CHECK_EQ(ibv_destroy_qp(victim->qp), 0);
			*victim = (struct talk){.qp = NULL};
			board->ends_seen[number]++;
		} else if (victim->qp && victim->missing == 0) {
			board->with_victims[number]++;
			start_round(victim, speaks_first);
		}
	}
	_exit(0);
}

static void be_killed(int number)
{
	struct endpoint endpoint;
	struct talk talks[SURVIVORS] = {{.qp = NULL}, {.qp = NULL}};
	CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
	open_endpoint(&endpoint, 2 * SURVIVORS * LENGTH, 256);
	for (int i = 0; i < SURVIVORS; i++)
		if (!connect_talk(&talks[i], &endpoint, &board->of_victim[i], 1, i, number, 17))
			_exit(0);
	/* Survivor 0 speaks first, this process speaks first to survivor 1. */
	for (int i = 0; i < SURVIVORS; i++)
		start_round(&talks[i], i == 1);
	for (;;) {
		struct ibv_wc completion;
		int found = ibv_poll_cq(endpoint.cq, 1, &completion);
		CHECK(found >= 0);
		if (found == 0) {
			sched_yield();
			continue;
		}
		struct talk *talk = &talks[completion.qp_num == talks[1].qp->qp_num];
		CHECK(completion.qp_num == talk->qp->qp_num);
		CHECK_EQ(completion.status, IBV_WC_SUCCESS);
		talk->missing--;
		if (completion.wr_id == 1) {
			CHECK(is_filled(endpoint.buffer + talk->in, LENGTH, talk->round));
			if (talk == &talks[0])
				answer(talk);
		}
		if (talk->missing == 0) {
			board->of_victims++;
			start_round(talk, talk == &talks[1]);
		}
	}
}

static uint64_t random_below(uint64_t *state, uint64_t limit)
{
	/* splitmix64 */
	uint64_t z = (*state += 0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return (z ^ (z >> 31)) % limit;
}

static void sleep_ns(uint64_t time)
{
	struct timespec rest = {time / 1000000000, time % 1000000000};
	while (nanosleep(&rest, &rest) != 0)
		CHECK_EQ(errno, EINTR);
}

static pid_t start(void (*run)(int), int number)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		run(number);
		_exit(0);
	}
	return child;
}

/* Ends the process if a child has ended that must not. */
static void check_runs(pid_t child, const char *what)
{
	int status;
	if (waitpid(child, &status, WNOHANG) == 0)
		return;
	fprintf(stderr, "%s has ended with status %#x\n", what, status);
	check_failed(__FILE__, __LINE__, "all others run on");
}

int main(int argc, char **argv)
{
	uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 0) : 10;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : now();
	uint64_t state = seed;
	printf("seed %#llx, %llu s\n", (unsigned long long)seed, (unsigned long long)seconds);
	fflush(stdout);
	limit_time(seconds + 60);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(board != MAP_FAILED);
	for (int i = 0; i < 2; i++)
		board->of_survivors.are_set[i] = -1;
	pid_t survivors[SURVIVORS];
	for (int i = 0; i < SURVIVORS; i++)
		survivors[i] = start(survive, i);
	unsigned long long end = now() + seconds * 1000000000;
	long kills = 0;
	long progress = 0;
	while (now() < end) {
		pid_t victim = start(be_killed, ++board->victim);
		/* From before it has opened its device to long transfers. */
		sleep_ns(random_below(&state, random_below(&state, 2) ? 60000000 : 400000000));
		check_runs(victim, "a victim");
		CHECK_EQ(kill(victim, SIGKILL), 0);
		CHECK_EQ(waitpid(victim, NULL, 0), victim);
		kills++;
		for (int i = 0; i < SURVIVORS; i++)
			check_runs(survivors[i], "a survivor");
		if (kills % 16 == 0) {
			CHECK(board->between_survivors > progress);
			progress = board->between_survivors;
		}
	}
	board->is_over = true;
	for (int i = 0; i < SURVIVORS; i++)
		expect_success_of(survivors[i]);
	printf("%ld kills; rounds: %ld between survivors, %ld and %ld with victims, %ld of victims\n",
	       kills, (long)board->between_survivors, (long)board->with_victims[0],
	       (long)board->with_victims[1], (long)board->of_victims);
	CHECK(kills > 0 && board->between_survivors > 0);
	if (seconds >= 5)
		CHECK(board->with_victims[0] > 0 && board->with_victims[1] > 0 &&
		      board->of_victims > 0);
	return 0;
}
