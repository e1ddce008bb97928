/*
 * rxe_agent: does on libibverbs what a test commands, line by line.
 *
 * Usage: rxe_agent [DEVICE]        (commands on standard input; ../README.md lists them)
 *
 * Every command is replied on standard output with one line, "ok ..." or "error ...", before the
 * next is read; `wait` puts one "wc ..." line for each completion in front. A failing command
 * changes nothing and does not end the program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

#define MAX_WORDS 32

struct ibv_context *context;
struct ibv_pd *pd;
struct object objects[MAX_OBJECTS];

static int command_counter(char **words)
{
	char path[256];
	unsigned long long value;
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/%s",
		 ibv_get_device_name(context->device), words[1] ? words[1] : "");
	FILE *file = fopen(path, "r");
	if (!file)
		return fail(errno, "%s", path);
	int got = fscanf(file, "%llu", &value);
	fclose(file);
	if (got != 1)
		return fail(0, "%s holds no number", path);
	ok("value=%llu", value);
	return 0;
}

static int command_capabilities(char **words)
{
	struct ibv_device_attr_ex attributes = { 0 };
	(void)words;
	int code = ibv_query_device_ex(context, NULL, &attributes);
	if (code)
		return fail(code, "ask for the capabilities");
	ok("flags=%llu paging=%u rdma_core=%d", (unsigned long long)attributes.device_cap_flags_ex,
	   attributes.odp_caps.general_caps & IBV_ODP_SUPPORT
		   ? attributes.odp_caps.per_transport_caps.rc_odp_caps : 0,
	   RDMA_CORE);
	return 0;
}

static int command_drop(char **words)
{
	for (int i = 0; words[1] && i < MAX_OBJECTS; i++) {
		struct object *object = &objects[i];
		if (object->kind == NOTHING || strcmp(object->name, words[1]))
			continue;
		int code = 0;
		if (object->kind == QUEUE_PAIR)
			destroy_qp(object);
		else if (object->kind == SHARED_QUEUE)
			code = ibv_destroy_srq(object->srq);
		else
			code = release_region(object);
		if (code)
			return fail(code, "drop %s", object->name);
		object->kind = NOTHING;
		ok("%s", "");
		return 0;
	}
	return fail(0, "nothing is called %s", words[1] ? words[1] : "that");
}

static const struct { const char *name; int (*run)(char **words); } commands[] = {
	{ "mr", command_mr },	    { "fill", command_memory }, { "crc", command_memory },
	{ "get", command_memory },    { "set", command_memory },  { "qp", command_qp },
	{ "connect", command_connect }, { "state", command_state }, { "error", command_error },
	{ "recv", command_recv },	    { "post", command_post },   { "wait", command_wait },
	{ "attach", command_group },  { "detach", command_group },
	{ "srq", command_srq },	    { "bind", command_bind },	{ "invalidate", command_invalidate },
	{ "lend", command_lend },	    { "counter", command_counter }, { "drop", command_drop },
	{ "capabilities", command_capabilities },
};

static int open_device(const char *name)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (!list)
		return fail(errno, "list devices");
	for (int i = 0; i < count && !context; i++)
		if (!name || strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!context)
		return fail(0, "no device %s", name ? name : "at all");
	pd = ibv_alloc_pd(context);
	if (!pd)
		return fail(errno, "protection domain");
	ok("device=%s", ibv_get_device_name(context->device));
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (open_device(argc > 1 ? argv[1] : NULL))
		return 1;
	char *line = NULL;
	size_t capacity = 0;
	while (getline(&line, &capacity, stdin) > 0) {
		char *words[MAX_WORDS + 1] = { NULL };
		char *rest = line;
		for (int i = 0; i < MAX_WORDS; i++)
			if (!(words[i] = strtok_r(i ? NULL : line, " \t\n", &rest)))
				break;
		if (!words[0])
			continue;
		bad_number = 0;
		size_t command = 0, known = sizeof commands / sizeof *commands;
		while (command < known && strcmp(commands[command].name, words[0]))
			command++;
		if (command == known)
			fail(0, "unknown command: %s", words[0]);
		else
			commands[command].run(words);
	}
	free(line);
	return 0;
}
