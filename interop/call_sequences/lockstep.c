/* Two ends in lockstep: a turn ends when both are quiet, so that no output depends on time. */
#define _GNU_SOURCE
#include "sequences.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS 20
#define QUIET_SLICES 2   /* behind an event, which may have others */
#define PENDING_SLICES 12 /* in front of the first one that a call may have */
#define FAILED_SLICES 4
#define ATTEMPTS 3000

static int peer;
static uint32_t turn;

/* Both ends may be on one machine. */
static uint16_t port_of(uint64_t seed)
{
	return (uint16_t)(10000 + seed % 2048);
}

static int wait_for_peer(uint64_t seed)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(port_of(seed)) };
	int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 1))
		return -1;
	int accepted = accept(listener, NULL, NULL);
	close(listener);
	return accepted;
}

static int find_peer(uint64_t seed)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(port_of(seed)), .sin_addr = t.peer_address };
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		int found = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (!connect(found, (struct sockaddr *)&there, sizeof there))
			return found;
		close(found);
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	return -1;
}

int meet(uint64_t seed)
{
	peer = t.end == 'a' ? wait_for_peer(seed) : find_peer(seed);
	if (peer < 0) {
		note("the other end is not there");
		return -1;
	}
	/* Small messages follow each other. */
	int one = 1;
	setsockopt(peer, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof one);
	return 0;
}

struct message tell(struct message mine)
{
	struct message theirs;
	mine.turn = turn;
	if (send(peer, &mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine ||
	    recv(peer, &theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs || theirs.turn != turn) {
		note("the other end is gone");
		fflush(stdout);
		_exit(1);
	}
	return theirs;
}

void settle_ends(void)
{
	struct message mine = { .has = !t.pending_ms ? 0 : t.has_failed ? FAILED_SLICES : PENDING_SLICES };
	struct message theirs = tell(mine);
	unsigned wanted = (mine.has + theirs.has) * t.patience;
	for (unsigned quiet = 0; quiet < wanted; quiet++) {
		mine.has = (uint32_t)take_connection_event(SLICE_MS);
		while (take_connection_event(0))
			;
		theirs = tell(mine);
		if (mine.has || theirs.has) {
			wanted = QUIET_SLICES * t.patience;
			quiet = (unsigned)-1; /* from here on */
		}
	}
	t.pending_ms = 0;
	print_connection_events();
	turn++;
}
