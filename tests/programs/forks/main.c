/* The table of moments, ways and deeds, and what holds for each. */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "forks.h"

#define LENGTH 4096
#define PORT 7471

static const char *const moments[MOMENTS] = {"before", "open", "closed", "meanwhile"};
static const char *const ways[WAYS] = {"fork", "double-fork", "daemon", "clone", "vfork", "spawn"};
static const char *const deeds[DEEDS] = {"lives", "exits", "execs", "uses"};

/* A child of vfork may only start a program or end, one of posix_spawn is a program. One of a bare clone
 * keeps what its parent has until it uses the library. */
static bool exists(enum way way, enum deed deed)
{
	switch (way) {
	case SPAWN:
		return deed == EXECS;
	case VFORK:
		return deed == EXITS || deed == EXECS;
	case CLONE:
		return deed != LIVES;
	default:
		return true;
	}
}

struct listener {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
};

static struct listener begin_to_listen(void)
{
	struct listener listener;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	listener.channel = rdma_create_event_channel();
	CHECK(listener.channel);
	CHECK_EQ(rdma_create_id(listener.channel, &listener.id, NULL, RDMA_PS_TCP), 0);
	if (rdma_bind_addr(listener.id, (struct sockaddr *)&address))
		CHECK_EQ(errno, 0);
	CHECK_EQ(rdma_listen(listener.id, 4), 0);
	return listener;
}

static void end_listening(struct listener listener)
{
	CHECK_EQ(rdma_destroy_id(listener.id), 0);
	rdma_destroy_event_channel(listener.channel);
}

struct usage {
	struct endpoint endpoint;
	struct connection connection;
	struct listener listener;
};

static void begin_use(struct usage *usage)
{
	open_endpoint(&usage->endpoint, 3 * LENGTH, 64);
	usage->connection = connect_to_self(&usage->endpoint, 8);
	transfer(&usage->endpoint, &usage->connection, LENGTH, 1);
	usage->listener = begin_to_listen();
	/* A descriptor of the program's, as one of the kernel's device. */
	note_descriptor(usage->listener.channel->fd);
}

static void end_use(struct usage *usage)
{
	transfer(&usage->endpoint, &usage->connection, LENGTH, 2);
	end_listening(usage->listener);
	disconnect(&usage->connection);
	close_endpoint(&usage->endpoint);
}

static atomic_bool is_stopped;

static void *use_until_stopped(void *seed)
{
	while (!is_stopped)
		use_own_device(*(unsigned *)seed);
	return NULL;
}

static void run_case(enum moment moment, enum way way, enum deed deed, unsigned seed)
{
	struct usage usage;
	pthread_t thread;
	open_own();
	/* With what the library keeps from the case before. */
	note_descriptors();
	if (moment == OPEN || moment == CLOSED)
		begin_use(&usage);
	if (moment == CLOSED)
		end_use(&usage);
	if (moment == MEANWHILE) {
		is_stopped = false;
		CHECK_EQ(pthread_create(&thread, NULL, use_until_stopped, &seed), 0);
		usleep(seed % 97 * 1000);
	}
	struct child child = make_child(way, deed, seed);
	if (moment == OPEN)
		end_use(&usage);
	if (moment == MEANWHILE) {
		is_stopped = true;
		CHECK_EQ(pthread_join(thread, NULL), 0);
	}
	/* Nothing is held: all can be had again while the child lives. */
	CHECK_EQ(bind_port(), 0);
	begin_use(&usage);
	end_use(&usage);
	CHECK_EQ(bind_port(), 0);
	end_child(child);
	check_own();
	close_own();
}

/* Runs so many of all cases, from a random one on, in the order of a step that reaches all. */
static void run_table(unsigned cases, unsigned count, unsigned seed)
{
	static struct {
		enum moment moment;
		enum way way;
		enum deed deed;
	} all[MOMENTS * WAYS * DEEDS];
	unsigned len = 0;
	for (enum moment moment = 0; moment < MOMENTS; moment++) {
		for (enum way way = 0; way < WAYS; way++) {
			for (enum deed deed = 0; deed < DEEDS; deed++) {
				/* Another thread may hold the lock of the heap, and no handler frees it. */
				bool is_bare = way == CLONE && moment == MEANWHILE;
				if (!exists(way, deed) || is_bare)
					continue;
				all[len].moment = moment;
				all[len].way = way;
				all[len++].deed = deed;
			}
		}
	}
	/* A prime that does not divide the number of cases. */
	CHECK(len % 31 != 0);
	CHECK_EQ(len, cases);
	for (unsigned i = 0; i < count; i++) {
		unsigned at = (seed + i * 31) % len;
		fprintf(stderr, "%u of %u: %s %s %s\n", at, len, moments[all[at].moment],
			ways[all[at].way], deeds[all[at].deed]);
		limit_time(60);
		run_case(all[at].moment, all[at].way, all[at].deed, seed + i);
	}
}

static const struct scenario scenarios[] = {
	{"closed-descriptors", closed_descriptors},
	{"closed-while-open", closed_while_open},
	{"exit-when-closed", exit_when_closed},
	{"path-when-closed", path_when_closed},
	{"handlers-of-fork", handlers_of_fork},
	{"locked-memory", locked_memory},
	{"made-meanwhile", made_meanwhile},
	{"one-thread", one_thread},
	{"other-user", other_user},
	{"own-device", own_device},
	{"replaced-descriptors", replaced_descriptors},
	{"stray", stray},
	{"unshared-descriptors", unshared_descriptors},
};

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "started") == 0) {
		started(argv[2]);
		return 0;
	}
	if (argc == 5 && strcmp(argv[1], "table") == 0) {
		run_table(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
		return 0;
	}
	return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}
