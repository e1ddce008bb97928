/* Very many objects, at once and one after the other. */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "torture.h"

/* What a process has. */
struct usage {
	int descriptors;
	int threads;
	long resident_kib;
};

static int entries(const char *folder)
{
	DIR *directory = opendir(folder);
	int count = 0;
	CHECK(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static struct usage usage(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file);
	CHECK_EQ(fscanf(file, "%*d %ld", &pages), 1);
	fclose(file);
	return (struct usage){
		.descriptors = entries("/proc/self/fd"),
		.threads = threads(),
		.resident_kib = pages * (sysconf(_SC_PAGESIZE) / 1024),
	};
}

/* Checks that a process has no more than before; of memory, at most `more_kib` more. */
static void check_no_growth(struct usage before, long more_kib)
{
	struct usage after = usage();
	/* The kernel lists a thread for a moment after it was joined. */
	unsigned long long end = now() + 5000000000ull;
	while (after.threads > before.threads && now() < end) {
		usleep(1000);
		after = usage();
	}
	CHECK_EQ(after.descriptors, before.descriptors);
	if (after.threads > before.threads)
		check_unequal(__FILE__, __LINE__, "threads", after.threads, before.threads);
	/* A tool that makes everything slow keeps freed memory, too. */
	if (!getenv("FEW_ROUNDS") && after.resident_kib > before.resident_kib + more_kib)
		check_unequal(__FILE__, __LINE__, "resident memory in KiB", after.resident_kib,
			      before.resident_kib);
}

static void open_and_close_contexts(int count)
{
	struct ibv_port_attr port;
	for (int i = 0; i < count; i++) {
		struct ibv_context *context = open_device();
		CHECK_EQ(ibv_query_port(context, 1, &port), 0);
		CHECK_EQ(ibv_close_device(context), 0);
	}
}

void many_contexts(void)
{
	open_and_close_contexts(5);
	struct usage before = usage();
	open_and_close_contexts(rounds(60));
	check_no_growth(before, 1024);

	for (int i = 0; i < 5; i++)
		use_own_device(i);
	before = usage();
	for (int i = 0; i < rounds(30); i++)
		use_own_device(i);
	check_no_growth(before, 2048);

	/* At once: they share what is on the interface. */
	enum { COUNT = 64 };
	struct ibv_context *contexts[COUNT];
	for (int i = 0; i < COUNT; i++)
		contexts[i] = open_device();
	use_own_device(1);
	for (int i = 0; i < COUNT; i++)
		CHECK_EQ(ibv_close_device(contexts[i]), 0);
	check_no_growth(before, 4096);
}

/* The library keeps up to four sockets in a process that opens devices again, and never the port, which rxe or
 * another program may want. */
void many_closed_devices(void)
{
	struct usage before = usage();
	for (int i = 0; i < rounds(20); i++) {
		struct ibv_context *context = open_device();
		CHECK_EQ(bind_port(), EADDRINUSE);
		CHECK_EQ(ibv_close_device(context), 0);
		CHECK_EQ(bind_port(), 0);
		/* Closed before its objects, a device ends with the last of them. */
		context = open_device();
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd);
		CHECK_EQ(ibv_close_device(context), 0);
		CHECK_EQ(bind_port(), EADDRINUSE);
		CHECK_EQ(ibv_dealloc_pd(pd), 0);
		CHECK_EQ(bind_port(), 0);
		CHECK(usage().descriptors <= before.descriptors + 5);
	}
	CHECK_EQ(threads(), before.threads);
}

static void make_and_destroy_objects(struct endpoint *endpoint)
{
	struct endpoint inner = *endpoint;
	inner.pd = ibv_alloc_pd(endpoint->context);
	CHECK(inner.pd);
	inner.channel = ibv_create_comp_channel(endpoint->context);
	CHECK(inner.channel);
	inner.cq = ibv_create_cq(endpoint->context, 16, NULL, inner.channel, 0);
	CHECK(inner.cq);
	inner.mr = ibv_reg_mr(inner.pd, inner.buffer, inner.length,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(inner.mr);
	struct connection connection = connect_to_self(&inner, 4);
	transfer(&inner, &connection, 1024, 1);
	disconnect(&connection);
	CHECK_EQ(ibv_dereg_mr(inner.mr), 0);
	CHECK_EQ(ibv_destroy_cq(inner.cq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(inner.channel), 0);
	CHECK_EQ(ibv_dealloc_pd(inner.pd), 0);
}

void many_objects(void)
{
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 1024, 64);
	for (int i = 0; i < rounds(200); i++)
		make_and_destroy_objects(&endpoint);
	struct usage before = usage();
	for (int i = 0; i < rounds(1000); i++)
		make_and_destroy_objects(&endpoint);
	check_no_growth(before, 2048);
	close_endpoint(&endpoint);
}

void many_queue_pairs(void)
{
	enum { MOST = 500 };
	int count = rounds(MOST);
	struct connection connections[MOST];
	struct endpoint endpoint;
	open_endpoint(&endpoint, 3 * 4096, 4096);
	int before = threads();
	for (int i = 0; i < count; i++)
		connections[i] = connect_to_self(&endpoint, 4);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < count; i++)
			transfer(&endpoint, &connections[i], 4096, i + round);
	/* All at once: one message on each. */
	for (int i = 0; i < count; i++)
		CHECK_EQ(post_recv(connections[i].right, &endpoint, 4096, 4096, i), 0);
	for (int i = 0; i < count; i++)
		CHECK_EQ(post_send(connections[i].left, &endpoint, 0, 4096, i), 0);
	for (int i = 0; i < 2 * count; i++)
		CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	for (int i = 0; i < count; i++)
		disconnect(&connections[i]);
	CHECK_EQ(threads(), before);
	close_endpoint(&endpoint);
}
