/* A program whose signal handler calls exit while its thread is in the allocator, as many end: what the library does at
 * exit must not need what the thread holds. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int told_at_exit;

static void tell(void)
{
	CHECK_EQ(write(told_at_exit, "x", 1), 1);
}

static void *transfer_in_thread(void *endpoint)
{
	struct connection connection = connect_to_self(endpoint, 16);
	transfer(endpoint, &connection, 3000, 1);
	/* The main thread has ended for long. */
	usleep(50000);
	return NULL;
}

/* A process ends with its last thread, whatever threads the library has, and as by exit. */
void exit_with_the_last_thread(void)
{
	int told[2];
	CHECK_EQ(pipe(told), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		static struct endpoint endpoint;
		limit_time(20);
		told_at_exit = told[1];
		CHECK_EQ(atexit(tell), 0);
		open_endpoint(&endpoint, 1 << 16, 64);
		pthread_t thread;
		CHECK_EQ(pthread_create(&thread, NULL, transfer_in_thread, &endpoint), 0);
		CHECK_EQ(pthread_detach(thread), 0);
		pthread_exit(NULL);
	}
	expect_success_of(child);
	char byte;
	CHECK_EQ(close(told[1]), 0);
	CHECK_EQ(read(told[0], &byte, 1), 1);
	CHECK_EQ(close(told[0]), 0);
}
