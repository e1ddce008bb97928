// Calls functions of librdmacm that version 60 and later have, by name: it is compiled where an older one
// is installed.
//
// Usage: addrinfo ADDRESS

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>

// Events that newer headers name.
#define ADDRINFO_RESOLVED ((enum rdma_cm_event_type)16)
#define USER ((enum rdma_cm_event_type)18)

static void *library;

static void check(const char *what, int ok)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void *find(const char *name)
{
	void *address = dlsym(library, name);

	check(name, address != NULL);
	return address;
}

int main(int argc, char **argv)
{
	library = dlopen("librdmacm.so.1", RTLD_NOW);
	check("librdmacm.so.1", library != NULL && argc == 2);

	struct rdma_event_channel *(*create_channel)(void) = find("rdma_create_event_channel");
	int (*create_id)(struct rdma_event_channel *, struct rdma_cm_id **, void *,
			 enum rdma_port_space) = find("rdma_create_id");
	int (*get_event)(struct rdma_event_channel *, struct rdma_cm_event **) =
		find("rdma_get_cm_event");
	int (*ack_event)(struct rdma_cm_event *) = find("rdma_ack_cm_event");
	int (*resolve)(struct rdma_cm_id *, const char *, const char *,
		       const struct rdma_addrinfo *) = find("rdma_resolve_addrinfo");
	int (*query)(struct rdma_cm_id *, struct rdma_addrinfo **) = find("rdma_query_addrinfo");
	int (*raise_event)(struct rdma_cm_id *, enum rdma_cm_event_type, int, uint64_t) =
		find("rdma_write_cm_event");
	int (*destroy_id)(struct rdma_cm_id *) = find("rdma_destroy_id");

	struct rdma_event_channel *channel = create_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	uint64_t argument;

	check("channel", channel != NULL);
	check("rdma_create_id", create_id(channel, &id, &id, RDMA_PS_TCP) == 0);

	check("rdma_resolve_addrinfo", resolve(id, argv[1], "7471", &hints) == 0);
	check("rdma_get_cm_event", get_event(channel, &event) == 0);
	check("an event of the names", event->event == ADDRINFO_RESOLVED && event->id == id);
	check("rdma_ack_cm_event", ack_event(event) == 0);
	check("rdma_query_addrinfo", query(id, &info) == 0 && info->ai_dst_len > 0);
	printf("resolved, %d bytes\n", info->ai_dst_len);

	check("rdma_write_cm_event", raise_event(id, USER, -5, 4711) == 0);
	check("rdma_get_cm_event", get_event(channel, &event) == 0);
	check("an event of the program", event->event == USER && event->status == -5);
	memcpy(&argument, &event->param, sizeof(argument));
	printf("raised %llu\n", (unsigned long long)argument);
	check("rdma_ack_cm_event", ack_event(event) == 0);
	check("rdma_destroy_id", destroy_id(id) == 0);
	return 0;
}
