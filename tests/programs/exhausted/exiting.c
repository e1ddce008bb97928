/* A program whose signal handler calls exit while its thread is in the allocator, as many end: what the library does at
 * exit must not need what the thread holds. */
#include <stdio.h>
#include <stdlib.h>

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
