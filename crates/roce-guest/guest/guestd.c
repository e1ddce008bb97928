/*
 * guestd: runs shell commands in the guest for the program that booted it.
 *
 * Usage: guestd /dev/vportNpM
 *
 * Both directions of the port carry frames: one byte of kind, then the command's number and the
 * length of the payload, both 32 bits little-endian.
 *
 *   to the guest              from the guest
 *   'R' run (a shell command) 'H' hello: guestd is ready (number 0)
 *   'I' standard input        'O' standard output
 *   'C' close standard input  'E' standard error
 *   'K' kill (signal, 1 byte) 'S' ended (exit status, or 256 + signal; 32 bits)
 *
 * Commands run concurrently, each in its own process group. When the other end closes the port,
 * guestd ends, and init powers the machine off.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_COMMANDS 64
#define MAX_FRAME (1u << 20)
#define HEADER 9

struct command {
	pid_t pid;      /* 0: this slot is free */
	uint32_t number;
	int in, out, err; /* ends of pipes; -1 once closed */
	int ended;      /* reaped: status is valid */
	int close_in;   /* close `in` once all pending bytes are written */
	uint32_t status;
	char *pending;  /* standard input that the command has not read yet */
	size_t pending_len;
};

static struct command commands[MAX_COMMANDS];
static int port;
static int child_pipe[2]; /* the handler of SIGCHLD writes, the loop reads */

static void die(const char *doing)
{
	fprintf(stderr, "guestd: %s: %s\n", doing, strerror(errno));
	exit(1);
}

static void put32(unsigned char *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (unsigned char)(value >> (8 * i));
}

static uint32_t get32(const unsigned char *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void write_all(const void *bytes, size_t len)
{
	const char *at = bytes;
	while (len > 0) {
		ssize_t done = write(port, at, len);
		if (done < 0 && (errno == EINTR || errno == EAGAIN)) {
			struct pollfd space = { .fd = port, .events = POLLOUT };
			poll(&space, 1, -1);
			if (space.revents & POLLHUP)
				exit(0);
			continue;
		}
		if (done < 0)
			die("write to the port");
		at += done;
		len -= (size_t)done;
	}
}

static void send_frame(char kind, uint32_t number, const void *payload, size_t len)
{
	unsigned char header[HEADER] = { (unsigned char)kind };
	put32(header + 1, number);
	put32(header + 5, (uint32_t)len);
	write_all(header, sizeof header);
	write_all(payload, len);
}

static void send_status(uint32_t number, uint32_t status)
{
	unsigned char bytes[4];
	put32(bytes, status);
	send_frame('S', number, bytes, sizeof bytes);
}

static void close_end(int *end)
{
	if (*end >= 0)
		close(*end);
	*end = -1;
}

/* Forwards bytes of the pipe `end`; closes it at end of file. Returns 1 if there were bytes. */
static int pump(struct command *command, int *end, char kind)
{
	static char bytes[65536];
	ssize_t len = read(*end, bytes, sizeof bytes);
	if (len > 0) {
		send_frame(kind, command->number, bytes, (size_t)len);
		return 1;
	}
	if (len == 0 || (errno != EAGAIN && errno != EINTR))
		close_end(end);
	return 0;
}

static void feed(struct command *command)
{
	if (command->pending_len > 0) {
		ssize_t done = write(command->in, command->pending, command->pending_len);
		if (done < 0 && errno != EAGAIN && errno != EINTR) {
			command->pending_len = 0; /* no process reads it */
			close_end(&command->in);
		} else if (done > 0) {
			command->pending_len -= (size_t)done;
			memmove(command->pending, command->pending + done, command->pending_len);
		}
	}
	if (command->pending_len == 0 && command->close_in)
		close_end(&command->in);
}

/* Ends a command: forwards the output that is still in its pipes, then its status. Does not wait
 * for end of file, since a child of the command may keep the pipes open. */
static void finish(struct command *command)
{
	while (command->out >= 0 && pump(command, &command->out, 'O'))
		;
	while (command->err >= 0 && pump(command, &command->err, 'E'))
		;
	close_end(&command->in);
	close_end(&command->out);
	close_end(&command->err);
	free(command->pending);
	send_status(command->number, command->status);
	memset(command, 0, sizeof *command);
}

static void run(uint32_t number, const char *line)
{
	struct command *command = NULL;
	for (int i = 0; i < MAX_COMMANDS && !command; i++)
		if (commands[i].pid == 0)
			command = &commands[i];
	int in[2], out[2], err[2];
	if (!command || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
		const char full[] = "guestd: too many commands at once\n";
		send_frame('E', number, full, sizeof full - 1);
		send_status(number, 126);
		return;
	}
	pid_t pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		setpgid(0, 0);
		if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0)
			_exit(126);
		signal(SIGPIPE, SIG_DFL);
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		execl("/bin/sh", "sh", "-c", line, (char *)NULL);
		_exit(127);
	}
	setpgid(pid, pid); /* in both processes: a kill may come before the child has run */
	close(in[0]);
	close(out[1]);
	close(err[1]);
	fcntl(in[1], F_SETFL, O_NONBLOCK);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	*command = (struct command){ .pid = pid, .number = number,
				     .in = in[1], .out = out[0], .err = err[0] };
}

static struct command *find(uint32_t number)
{
	for (int i = 0; i < MAX_COMMANDS; i++)
		if (commands[i].pid != 0 && commands[i].number == number)
			return &commands[i];
	return NULL; /* it has ended */
}

static void handle(char kind, uint32_t number, char *payload, uint32_t len)
{
	struct command *command = kind == 'R' ? NULL : find(number);
	switch (kind) {
	case 'R':
		run(number, payload);
		break;
	case 'I':
		if (!command || command->in < 0)
			break;
		command->pending = realloc(command->pending, command->pending_len + len);
		if (!command->pending)
			die("memory for standard input");
		memcpy(command->pending + command->pending_len, payload, len);
		command->pending_len += len;
		feed(command);
		break;
	case 'C':
		if (command) {
			command->close_in = 1;
			feed(command);
		}
		break;
	case 'K':
		if (command && len == 1)
			kill(-command->pid, payload[0]);
		break;
	default:
		fprintf(stderr, "guestd: unknown kind of frame %d\n", kind);
		exit(1);
	}
}

/* Reads available bytes and handles all complete frames. */
static void read_port(void)
{
	static char buffer[HEADER + MAX_FRAME + 1];
	static size_t have;
	ssize_t got = read(port, buffer + have, HEADER + MAX_FRAME - have);
	if (got == 0)
		exit(0);
	if (got < 0) {
		if (errno == EAGAIN || errno == EINTR)
			return;
		die("read from the port");
	}
	have += (size_t)got;
	size_t at = 0;
	while (have - at >= HEADER) {
		const unsigned char *header = (unsigned char *)buffer + at;
		uint32_t number = get32(header + 1), len = get32(header + 5);
		if (len > MAX_FRAME) {
			fprintf(stderr, "guestd: a frame of %u bytes\n", len);
			exit(1);
		}
		if (have - at - HEADER < len)
			break;
		char *payload = buffer + at + HEADER;
		char after = payload[len];
		payload[len] = 0; /* a command line is a string */
		handle((char)header[0], number, payload, len);
		payload[len] = after;
		at += HEADER + len;
	}
	memmove(buffer, buffer + at, have - at);
	have -= at;
}

static void on_child(int signal)
{
	(void)signal;
	int kept = errno;
	ssize_t done = write(child_pipe[1], "", 1);
	(void)done; /* a full pipe wakes the loop, too */
	errno = kept;
}

static void reap(void)
{
	char bytes[64];
	while (read(child_pipe[0], bytes, sizeof bytes) > 0)
		;
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int i = 0; i < MAX_COMMANDS; i++)
			if (commands[i].pid == pid) {
				commands[i].status = WIFSIGNALED(status)
					? 256u + (uint32_t)WTERMSIG(status)
					: (uint32_t)WEXITSTATUS(status);
				finish(&commands[i]);
			}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: guestd PORT\n");
		return 2;
	}
	port = open(argv[1], O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (port < 0)
		die(argv[1]);
	if (pipe2(child_pipe, O_CLOEXEC | O_NONBLOCK))
		die("pipe");
	signal(SIGPIPE, SIG_IGN);
	struct sigaction action = { .sa_handler = on_child, .sa_flags = SA_RESTART };
	sigaction(SIGCHLD, &action, NULL);
	send_frame('H', 0, "", 0);

	for (;;) {
		struct pollfd fds[2 + 3 * MAX_COMMANDS] = {
			{ .fd = port, .events = POLLIN },
			{ .fd = child_pipe[0], .events = POLLIN },
		};
		for (int i = 0; i < MAX_COMMANDS; i++) {
			struct command *command = &commands[i];
			int used = command->pid != 0;
			struct pollfd *at = &fds[2 + 3 * i];
			at[0].fd = used && command->pending_len > 0 ? command->in : -1;
			at[0].events = POLLOUT;
			at[1].fd = used ? command->out : -1;
			at[1].events = POLLIN;
			at[2].fd = used ? command->err : -1;
			at[2].events = POLLIN;
		}
		if (poll(fds, sizeof fds / sizeof *fds, -1) < 0) {
			if (errno == EINTR)
				continue;
			die("poll");
		}
		if (fds[0].revents & POLLHUP)
			return 0;
		for (int i = 0; i < MAX_COMMANDS; i++) {
			struct command *command = &commands[i];
			struct pollfd *at = &fds[2 + 3 * i];
			if (at[0].fd >= 0 && at[0].revents)
				feed(command);
			if (at[1].fd >= 0 && at[1].revents && command->out >= 0)
				pump(command, &command->out, 'O');
			if (at[2].fd >= 0 && at[2].revents && command->err >= 0)
				pump(command, &command->err, 'E');
		}
		if (fds[1].revents)
			reap();
		if (fds[0].revents & POLLIN)
			read_port();
	}
}
