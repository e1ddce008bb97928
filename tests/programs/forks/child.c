/* Children, and what they find. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "forks.h"

extern char **environ;

#define MAX_DESCRIPTORS 1100

/* What each descriptor was when they were noted; empty if it was closed. */
static char noted[MAX_DESCRIPTORS][64];

static bool describe(int fd, char text[64])
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(path, text, 63);
	text[length < 0 ? 0 : length] = 0;
	return length >= 0;
}

void note_descriptors(void)
{
	for (int fd = 0; fd < MAX_DESCRIPTORS; fd++)
		describe(fd, noted[fd]);
}

void note_descriptor(int fd)
{
	describe(fd, noted[fd]);
}

int surplus(void)
{
	char text[64], line[512];
	int found = 0;
	for (int fd = 0; fd < MAX_DESCRIPTORS; fd++) {
		if (!describe(fd, text) || strcmp(text, noted[fd]) == 0)
			continue;
		/* What a thread of the parent was just reading holds nothing. */
		if (strncmp(text, "/proc/", 6) != 0 && strncmp(text, "/sys/", 5) != 0) {
			fprintf(stderr, "descriptor %d: %s\n", fd, text);
			found++;
		}
	}
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (strstr(line, "socket:")) {
			fprintf(stderr, "mapping %s", line);
			found++;
		}
	}
	fclose(maps);
	return found;
}

#define OWN 12

static struct {
	int fd;
	struct stat status;
} own[OWN];

void open_own(void)
{
	for (int i = 0; i < OWN; i++) {
		switch (i % 4) {
		case 0:
			own[i].fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
			break;
		case 1:
			own[i].fd = eventfd(i, EFD_CLOEXEC | EFD_NONBLOCK);
			break;
		case 2:
			own[i].fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
			break;
		default:
			own[i].fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		}
		CHECK(own[i].fd >= 0);
		CHECK_EQ(fstat(own[i].fd, &own[i].status), 0);
	}
}

void check_own(void)
{
	for (int i = 0; i < OWN; i++) {
		struct stat status;
		unsigned long long count;
		CHECK_EQ(fstat(own[i].fd, &status), 0);
		CHECK_EQ(status.st_dev, own[i].status.st_dev);
		CHECK_EQ(status.st_ino, own[i].status.st_ino);
		if (i % 4 == 1) {
			CHECK_EQ(read(own[i].fd, &count, sizeof(count)), (long long)sizeof(count));
			CHECK_EQ(count, i);
			CHECK_EQ(write(own[i].fd, &count, sizeof(count)), (long long)sizeof(count));
		}
	}
}

void close_own(void)
{
	for (int i = 0; i < OWN; i++)
		CHECK_EQ(close(own[i].fd), 0);
}

/* Tells the parent that the deed is done, waits to be released, and ends. */
static void report_and_wait(int report, int hold)
{
	char byte = 'r';
	CHECK_EQ(write(report, &byte, 1), 1);
	CHECK_EQ(read(hold, &byte, 1), 0);
	check_own();
	CHECK_EQ(write(report, &byte, 1), 1);
	_exit(0);
}

/* What a child does that has not called vfork. */
static void do_deed(enum way way, enum deed deed, unsigned seed, int report, int hold)
{
	/* A timer is not inherited. */
	limit_time(60);
	if (deed == EXECS) {
		/* The program that is started reports by what it inherits. */
		fcntl(report, F_SETFD, 0);
		fcntl(hold, F_SETFD, 0);
		char fds[32];
		snprintf(fds, sizeof(fds), "%d,%d", report, hold);
		execl("/proc/self/exe", "forks", "started", fds, NULL);
		_exit(127);
	}
	check_own();
	if (deed == USES)
		use_own_device(seed);
	/* A child of a bare clone runs no handler, and keeps all until it uses the library. */
	if (way != CLONE && deed != USES)
		CHECK_EQ(surplus(), 0);
	if (deed == EXITS) {
		char bytes[2] = "rr";
		CHECK_EQ(write(report, bytes, 2), 2);
		_exit(0);
	}
	report_and_wait(report, hold);
}

/* A program that a child has started. */
void started(const char *fds)
{
	int report, hold;
	char byte = 'r';
	CHECK_EQ(sscanf(fds, "%d,%d", &report, &hold), 2);
	CHECK_EQ(write(report, &byte, 1), 1);
	CHECK_EQ(read(hold, &byte, 1), 0);
	CHECK_EQ(write(report, &byte, 1), 1);
}

static pid_t spawn(int report, int hold)
{
	char fds[32];
	char *arguments[] = {"forks", "started", fds, NULL};
	pid_t pid;
	/* Beside the descriptors that close on exec. */
	int of_child[2] = {fcntl(report, F_DUPFD, 3), fcntl(hold, F_DUPFD, 3)};
	snprintf(fds, sizeof(fds), "%d,%d", of_child[0], of_child[1]);
	CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
	close(of_child[0]);
	close(of_child[1]);
	return pid;
}

static pid_t in_vfork(enum deed deed, int report, int hold)
{
	char fds[32];
	int of_child[2] = {fcntl(report, F_DUPFD, 3), fcntl(hold, F_DUPFD, 3)};
	snprintf(fds, sizeof(fds), "%d,%d", of_child[0], of_child[1]);
	pid_t pid = vfork();
	if (pid == 0) {
		if (deed == EXECS)
			execl("/proc/self/exe", "forks", "started", fds, NULL);
		_exit(deed == EXECS ? 127 : 0);
	}
	close(of_child[0]);
	close(of_child[1]);
	return pid;
}

struct child make_child(enum way way, enum deed deed, unsigned seed)
{
	int reports[2], holds[2];
	struct child child = {.pid = -1};
	CHECK_EQ(pipe2(reports, O_CLOEXEC), 0);
	CHECK_EQ(pipe2(holds, O_CLOEXEC), 0);
	int report = reports[1], hold = holds[0];
	switch (way) {
	case SPAWN:
		child.pid = spawn(report, hold);
		break;
	case VFORK:
		child.pid = in_vfork(deed, report, hold);
		break;
	case CLONE:
		child.pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
		break;
	default:
		child.pid = fork();
	}
	CHECK(child.pid >= 0);
	if (child.pid == 0) {
		close(reports[0]);
		close(holds[1]);
		/* Those of the child's own are no surplus. */
		note_descriptor(report);
		note_descriptor(hold);
		if (way == DOUBLE_FORK && fork() != 0)
			_exit(0);
		if (way == DAEMON) {
			CHECK_EQ(daemon(1, 1), 0);
		}
		do_deed(way, deed, seed, report, hold);
	}
	close(report);
	close(hold);
	child.report = reports[0];
	child.hold = holds[1];
	if (way == VFORK && deed == EXITS) {
		expect_success_of(child.pid);
		child.pid = 0;
		return child;
	}
	char byte;
	CHECK_EQ(read(child.report, &byte, 1), 1);
	if (way == CLONE && deed == EXITS) {
		/* It holds all until it has ended. */
		expect_success_of(child.pid);
		child.pid = 0;
	}
	return child;
}

void end_child(struct child child)
{
	close(child.hold);
	if (child.pid > 0) {
		char byte;
		CHECK_EQ(read(child.report, &byte, 1), 1);
		expect_success_of(child.pid);
	}
	close(child.report);
}
