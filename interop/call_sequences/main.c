/*
 * call_sequences: executes calls of libibverbs and librdmacm that a seed decides, and prints every result
 * in a form that does not depend on the device, so that two devices can be compared.
 *
 * Usage: call_sequences DEVICE FIRST COUNT CALLS [PROCESSES [a|b PEER [PATIENCE]]]
 *        call_sequences DEVICE files
 *
 * Executes COUNT sequences of CALLS calls from the seed FIRST on, each in a process of its own, PROCESSES at
 * a time. The output of seed 7 is between the lines "= 7" and "= 7 ended" ("hung" after 30 s, "killed" with
 * the signal's number, "stuck" if the process cannot be killed; then nothing follows).
 *
 * With a letter it is one of two ends that connect with each other, and PEER the address of the other one: see
 * ends.c. A sequence is hung after 30 s then, and others follow one that is stuck; PATIENCE multiplies the time that
 * it has, and that each turn waits for what a call causes.
 */
#define _GNU_SOURCE
#include "sequences.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_PROCESSES 16
#define LIMIT_SECONDS (t.end ? 30 * (int)t.patience : 30) /* a busy machine */

static const struct step *const verbs[] = { device_steps, memory_steps, queue_steps, pair_steps, work_steps, settle_steps };
static const struct step *const connections[] = { cm_steps };

const struct step *some_step(const struct step *const *lists, size_t count)
{
	uint32_t sum = 0;
	for (size_t i = 0; i < count; i++)
		for (const struct step *it = lists[i]; it->run; it++)
			sum += it->weight;
	uint32_t at = pick(sum);
	for (size_t i = 0; i < count; i++)
		for (const struct step *it = lists[i]; it->run; it++) {
			if (at < it->weight)
				return it;
			at -= it->weight;
		}
	return NULL;
}

static void sequence(const char *device, uint64_t seed, uint32_t calls)
{
	if (open_device(device))
		return;
	if (t.end) {
		two_ends(seed, calls);
		return;
	}
	/* Every fourth sequence is of librdmacm. */
	int connects = seed % 4 == 3;
	t.first_port = 20000 + (uint32_t)(seed % 4096) * 4;
	random_start(seed, 0);
	if (connects)
		prepare_connections();
	else
		prepare_verbs();
	for (uint32_t step = 1; step <= calls; step++) {
		random_start(seed, step);
		const struct step *it = connects ? some_step(connections, sizeof connections / sizeof *connections)
						 : some_step(verbs, sizeof verbs / sizeof *verbs);
		printf("%02u ", step);
		it->run();
	}
	settle();
	if (connects)
		settle_connections();
}

struct running {
	pid_t pid;
	uint64_t seed;
	int file;
	time_t since;
	int is_killed;
};

static void start(struct running *it, const char *device, uint64_t seed, uint32_t calls)
{
	it->seed = seed;
	it->file = memfd_create("sequence", 0);
	it->since = time(NULL);
	it->is_killed = 0;
	it->pid = fork();
	if (it->pid == 0) {
		dup2(it->file, 1);
		sequence(device, seed, calls);
		fflush(stdout);
		_exit(0);
	}
}

static void finish(struct running *it, const char *how, int number)
{
	char bytes[65536];
	ssize_t got;
	printf("= %llu\n", (unsigned long long)it->seed);
	for (off_t at = 0; (got = pread(it->file, bytes, sizeof bytes, at)) > 0; at += got)
		fwrite(bytes, 1, (size_t)got, stdout);
	close(it->file);
	printf("\n= %llu %s %d\n", (unsigned long long)it->seed, how, number);
	fflush(stdout);
	it->pid = 0;
}

/* Looks at a process; returns 1 if it cannot be killed. */
static int look(struct running *it)
{
	int status;
	if (waitpid(it->pid, &status, WNOHANG) == it->pid) {
		if (it->is_killed)
			finish(it, "hung", 0);
		else if (WIFSIGNALED(status))
			finish(it, "killed", WTERMSIG(status));
		else
			finish(it, "ended", WEXITSTATUS(status));
		return 0;
	}
	time_t passed = time(NULL) - it->since;
	if (passed > 2 * LIMIT_SECONDS) {
		finish(it, "stuck", 0);
		return !t.end;
	}
	if (passed > LIMIT_SECONDS && !it->is_killed) {
		kill(it->pid, SIGKILL);
		it->is_killed = 1;
	}
	return 0;
}

static int all(const char *device, uint64_t first, uint64_t count, uint32_t calls, unsigned processes)
{
	struct running running[MAX_PROCESSES] = { 0 };
	uint64_t started = 0, live = 0;
	do {
		live = 0;
		for (unsigned i = 0; i < processes; i++) {
			if (running[i].pid && look(&running[i]))
				return 1;
			if (!running[i].pid && started < count)
				start(&running[i], device, first + started++, calls);
			live += running[i].pid != 0;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
	} while (live);
	return 0;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && !strcmp(argv[2], "files")) {
		if (open_device(argv[1]))
			return 1;
		note_files();
		return 0;
	}
	if (argc < 5) {
		fprintf(stderr, "usage: call_sequences DEVICE FIRST COUNT CALLS [PROCESSES [a|b PEER [PATIENCE]]]\n");
		return 2;
	}
	if (argc > 7 && inet_pton(AF_INET, argv[7], &t.peer_address) == 1)
		t.end = argv[6][0];
	t.patience = argc > 8 ? (uint32_t)atoi(argv[8]) : 1;
	unsigned processes = argc > 5 ? (unsigned)atoi(argv[5]) : 1;
	if (processes < 1 || processes > MAX_PROCESSES)
		processes = 1;
	return all(argv[1], strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0), (uint32_t)atoi(argv[4]), processes);
}
