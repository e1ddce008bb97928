/* Children that are made while another thread makes objects with descriptors. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "endpoint.h"
#include "forks.h"

enum { FORKS = 400 };

static atomic_bool is_stopped;

static void *make_channels(void *context)
{
	while (!is_stopped) {
		struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
		CHECK(channel);
		CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
	}
	return NULL;
}

/* No child has a descriptor that the library does not know yet: it would keep it for ever. */
void made_meanwhile(void)
{
	struct ibv_context *context = open_device();
	pthread_t thread;
	note_descriptors();
	note_descriptor(context->async_fd);
	CHECK_EQ(pthread_create(&thread, NULL, make_channels, context), 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			_exit(surplus() != 0);
		expect_success_of(child);
	}
	is_stopped = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(ibv_close_device(context), 0);
}
