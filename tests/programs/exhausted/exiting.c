/* A program whose signal handler calls exit while its thread is in the allocator, as many end: what the library does at
 * exit must not need what the thread holds. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "exhausted.h"

static long before;

/* The first handler that runs. */
static void note_calls(void)
{
	before = own_calls_of_allocator();
}

/* Runs after that of the library. */
static void check_calls(void)
{
	CHECK_EQ(own_calls_of_allocator(), before);
}

/* Returns how many threads drive a device. */
static int driver_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int count = 0;
	CHECK(tasks);
	for (struct dirent *entry; (entry = readdir(tasks));) {
		char path[300], name[17] = "";
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
		FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (file && fgets(name, sizeof name, file))
			count += !strncmp(name, "roce ", 5);
		if (file)
			fclose(file);
	}
	CHECK_EQ(closedir(tasks), 0);
	return count;
}

/* Waits until so many threads drive devices. The kernel lists a thread for some moments after its function has
 * returned; the scenario's limit of time ends a wait for one that does not. */
static void expect_driver_threads(int count)
{
	while (driver_threads() != count)
		usleep(1000);
}

static struct endpoint made_at_exit;

static void check_threads(void)
{
	expect_driver_threads(0);
}

/* Runs after the library's handler. */
static void open_at_exit(void)
{
	open_endpoint(&made_at_exit, 4096, 8);
	expect_driver_threads(1);
}

/* What handlers of the program open after the library's own has run is ended, too. */
void exit_with_device_of_handler(void)
{
	struct endpoint endpoint;
	CHECK_EQ(atexit(check_threads), 0);
	CHECK_EQ(atexit(open_at_exit), 0);
	open_endpoint(&endpoint, 4096, 8);
	exit(0);
}

void exit_without_allocator(void)
{
	struct endpoint endpoint;
	CHECK_EQ(atexit(check_calls), 0);
	open_endpoint(&endpoint, 1 << 16, 64);
	CHECK_EQ(atexit(note_calls), 0);
	struct connection connection = connect_to_self(&endpoint, 16);
	for (int i = 0; i < 10; i++)
		transfer(&endpoint, &connection, 3000, i);
	exit(0);
}

/* A process that ends with its last thread. */
struct ending {
	struct endpoint endpoint;
	struct connection connection;
	int told;
};

static struct ending ending;

static void tell(const char *what)
{
	CHECK_EQ(write(ending.told, what, 1), 1);
}

/* Runs as in a thread of the program: the device works, and signals come. */
static void use_the_device_at_exit(void)
{
	sigset_t blocked;
	CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
	CHECK(!sigismember(&blocked, SIGUSR1));
	transfer(&ending.endpoint, &ending.connection, 3000, 2);
	tell("x");
}

/* Runs in the main thread, behind the library's function for its end. */
static void end_slowly(void *unused)
{
	(void)unused;
	usleep(100000);
	tell("d");
}

static void *transfer_in_thread(void *unused)
{
	transfer(&ending.endpoint, &ending.connection, 3000, 1);
	/* The main thread has ended for long. */
	usleep(200000);
	tell("t");
	return unused;
}

static _Noreturn void end_thread_by_thread(int told)
{
	struct rlimit none = {0, 0};
	pthread_key_t key;
	pthread_t thread;
	limit_time(20);
	ending.told = told;
	CHECK_EQ(atexit(use_the_device_at_exit), 0);
	CHECK_EQ(pthread_key_create(&key, end_slowly), 0);
	CHECK_EQ(pthread_setspecific(key, &ending), 0);
	open_endpoint(&ending.endpoint, 1 << 16, 64);
	ending.connection = connect_to_self(&ending.endpoint, 16);
	CHECK_EQ(pthread_create(&thread, NULL, transfer_in_thread, NULL), 0);
	CHECK_EQ(pthread_detach(thread), 0);
	/* Nothing that ends the process may need one more descriptor. */
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	pthread_exit(NULL);
}

static void *fork_one_that_ends_so(void *unused)
{
	int told[2];
	char bytes[4];
	CHECK_EQ(pipe(told), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		end_thread_by_thread(told[1]);
	expect_success_of(child);
	CHECK_EQ(close(told[1]), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(read(told[0], bytes + i, 1), 1);
	CHECK_EQ(read(told[0], bytes + 3, 1), 0);
	CHECK(!memcmp(bytes, "dtx", 3));
	CHECK_EQ(close(told[0]), 0);
	return unused;
}

/* A process ends with its last thread, whatever threads the library has, and as by exit. */
void exit_with_the_last_thread(void)
{
	pthread_t thread;
	fork_one_that_ends_so(NULL);
	/* The thread that forks is the child's main thread. */
	CHECK_EQ(pthread_create(&thread, NULL, fork_one_that_ends_so, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}
