/*
 * The bootstrap: lines of text to and from the bootstrap server, which is a part of rank 0. Each is
 * `WORD key=value ...`; docs/ring-protocol.md has their course under "Bootstrap".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"

#define LINE_BYTES 8192

int server_fd = -1;

uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fail(enum status status, const char *format, ...)
{
	char reason[1024];
	va_list list;
	va_start(list, format);
	vsnprintf(reason, sizeof reason, format, list);
	va_end(list);
	if (status == USAGE)
		fprintf(stderr, "ring_allreduce: %s\n", reason);
	else
		fprintf(stderr, "ring_allreduce: rank %u: %s\n", self, reason);
	if (status == OURS && server_fd >= 0)
		say("ABORT rank=%u reason=%s", self, encode(reason));
	exit(status);
}

/* Percent-encodes a value; the result lives until the next call but three. */
const char *encode(const char *text)
{
	static char buffers[4][1024];
	static unsigned turn;
	char *start = buffers[turn++ % 4], *to = start;
	for (; *text && to < start + sizeof buffers[0] - 4; text++)
		if (*text > ' ' && *text < 0x7f && *text != '%')
			*to++ = *text;
		else
			to += sprintf(to, "%%%02X", (unsigned char)*text);
	*to = 0;
	return start;
}

void say(const char *format, ...)
{
	char line[LINE_BYTES];
	va_list list;
	va_start(list, format);
	int len = vsnprintf(line, sizeof line - 1, format, list);
	va_end(list);
	if (len < 0 || len >= (int)sizeof line - 1)
		return; /* nothing that we say is that long */
	line[len++] = '\n';
	for (int done = 0, more; done < len; done += more)
		if ((more = (int)send(server_fd, line + done, (size_t)(len - done), MSG_NOSIGNAL)) < 0)
			return; /* the bootstrap server is gone: hear() will say so */
}

/* Copies the value of a key out of a line, decoded; false where the line has no such key. */
bool find(const char *line, const char *key, char *value, size_t capacity)
{
	size_t len = strlen(key);
	for (const char *at = strchr(line, ' '); at; at = strchr(at + 1, ' ')) {
		if (strncmp(at + 1, key, len) || at[1 + len] != '=')
			continue;
		size_t n = 0;
		unsigned code;
		for (at += len + 2; *at && *at != ' ' && n + 1 < capacity; at++)
			if (*at == '%' && sscanf(at + 1, "%2x", &code) == 1)
				value[n++] = (char)code, at += 2;
			else
				value[n++] = *at;
		value[n] = 0;
		return true;
	}
	*value = 0;
	return false;
}

uint64_t number(const char *line, const char *key)
{
	char text[32], *end;
	errno = 0;
	uint64_t value = find(line, key, text, sizeof text) ? strtoull(text, &end, 0) : 0;
	if (!*text || *end || errno)
		fail(OURS, "the bootstrap server says no %s in `%.200s`", key, line);
	return value;
}

/* The next line from the bootstrap server; NULL when none came within `patience_ms`. Bad news ends us. */
char *hear(int patience_ms)
{
	static char bytes[LINE_BYTES + 1];
	static size_t have, taken;
	uint64_t deadline = now_ns() + (uint64_t)patience_ms * 1000000;
	memmove(bytes, bytes + taken, have -= taken);
	taken = 0;
	char *end;
	while (!(end = memchr(bytes, '\n', have))) {
		if (have == LINE_BYTES)
			fail(OURS, "the bootstrap server sent a line of more than %d bytes", LINE_BYTES);
		uint64_t now = now_ns();
		struct pollfd news = { .fd = server_fd, .events = POLLIN };
		int left = now < deadline ? (int)((deadline - now + 999999) / 1000000) : 0;
		if (poll(&news, 1, left) <= 0)
			return NULL;
		ssize_t got = recv(server_fd, bytes + have, LINE_BYTES - have, 0);
		if (got <= 0)
			fail(RANK_FAILED, "rank 0 is gone: its end of the bootstrap closed");
		have += (size_t)got;
	}
	*end = 0;
	taken = (size_t)(end + 1 - bytes);
	char reason[1024], rank[16];
	find(bytes, "reason", reason, sizeof reason);
	if (!strncmp(bytes, "REFUSE ", 7))
		fail(REFUSED, "refused: %s", reason);
	if (!strncmp(bytes, "ABORT ", 6)) {
		find(bytes, "rank", rank, sizeof rank);
		fail(RANK_FAILED, "rank %s failed: %s", rank, reason);
	}
	return bytes;
}

char *expect(const char *word)
{
	char *line = hear((int)options.patience * 1000 + 5000); /* the bootstrap server gives up first */
	if (!line)
		fail(REFUSED, "no %s from %s within %" PRIu64 " s: are all ranks there?", word, options.root,
		     options.patience);
	size_t len = strlen(word);
	if (strncmp(line, word, len) || (line[len] && line[len] != ' '))
		fail(OURS, "the bootstrap server says `%.200s` where %s belongs", line, word);
	return line;
}

/* A neighbour failed us. What the bootstrap server heard first is nearer the cause than what we saw. */
void blame(unsigned neighbour, const char *reason)
{
	say("ABORT rank=%u reason=%s", neighbour, encode(reason));
	while (hear(2000))
		;
	fail(RANK_FAILED, "rank %u failed: %s", neighbour, reason);
}

/* Connects to the bootstrap server, which may not listen yet. */
void connect_to_hub(void)
{
	char host[256];
	const char *colon = strrchr(options.root, ':');
	if (!colon || colon == options.root || colon - options.root >= (long)sizeof host)
		fail(USAGE, "--root %s: should be ADDRESS:PORT", options.root);
	snprintf(host, sizeof host, "%.*s", (int)(colon - options.root), options.root);
	if (host[0] == '[' && host[strlen(host) - 1] == ']') { /* an IPv6 address */
		memmove(host, host + 1, strlen(host));
		host[strlen(host) - 1] = 0;
	}
	struct addrinfo wish = { .ai_socktype = SOCK_STREAM }, *found, *one;
	int code = getaddrinfo(host, colon + 1, &wish, &found);
	if (code)
		fail(USAGE, "--root %s: %s", options.root, gai_strerror(code));
	uint64_t deadline = now_ns() + options.patience * 1000000000;
	int error = 0;
	static const struct { int level, name, value; } settings[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },       { SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 1 },      { IPPROTO_TCP, TCP_KEEPINTVL, 1 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 4 },       { IPPROTO_TCP, TCP_USER_TIMEOUT, 5000 },
	};
	for (one = found; now_ns() < deadline; one = one->ai_next ? one->ai_next : found) {
		int fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		struct timeval two_seconds = { .tv_sec = 2 }; /* for connecting, and for each send */
		if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &two_seconds, sizeof two_seconds))
			fail(OURS, "no socket: %s", strerror(errno));
		if (!connect(fd, one->ai_addr, one->ai_addrlen)) {
			for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
				setsockopt(fd, settings[i].level, settings[i].name, &settings[i].value,
					   sizeof settings[i].value);
			server_fd = fd;
			freeaddrinfo(found);
			return;
		}
		error = errno == EINPROGRESS ? ETIMEDOUT : errno;
		close(fd);
		poll(NULL, 0, 100); /* not a busy loop */
	}
	fail(REFUSED, "no server answers at %s: %s; is rank 0 started?", options.root, strerror(error));
}
