/* Registered memory whose pages go away, what requests on it give, and signals of the program beside it. */
#include <stdio.h>

#include "absent.h"
#include "check.h"

static void unmapped(void)
{
	run_operations(UNMAPPED);
}

static void protected(void)
{
	run_operations(PROTECTED);
}

static void read_only(void)
{
	run_operations(READ_ONLY);
}

static void truncated(void)
{
	run_operations(TRUNCATED);
}

static void given_back(void)
{
	run_operations(GIVEN_BACK);
}

static void no_huge_page(void)
{
	run_operations(NO_HUGE_PAGE);
}

/* Data of an inline request is the library's from the call on. */
static void inline_data(void)
{
	struct endpoint endpoint;
	struct memory memory;
	struct ibv_send_wr *bad;
	open_endpoint(&endpoint, 3 * MESSAGE, 64);
	make_memory(&memory, &endpoint, UNMAPPED);
	struct connection connection = connect_to_self(&endpoint, 8);
	struct ibv_sge piece = {(uintptr_t)memory.at + 4096, 48, memory.mr->lkey};
	struct ibv_send_wr request = {.wr_id = 5, .sg_list = &piece, .num_sge = 1};
	request.opcode = IBV_WR_SEND;
	request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	fill(memory.at + 4096, 48, 3);
	CHECK_EQ(post_recv(connection.right, &endpoint, 0, 48, 1), 0);
	CHECK_EQ(ibv_post_send(connection.left, &request, &bad), 0);
	lose(&memory, UNMAPPED);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(next_completion(endpoint.cq).status, IBV_WC_SUCCESS);
	CHECK(is_filled(endpoint.buffer, 48, 3));
	disconnect(&connection);
	free_memory(&memory);
	close_endpoint(&endpoint);
}

static const struct scenario scenarios[] = {
	{"loss-unmapped", unmapped},
	{"loss-protected", protected},
	{"loss-read-only", read_only},
	{"loss-truncated", truncated},
	{"loss-given-back", given_back},
	{"loss-no-huge-page", no_huge_page},
	{"loss-behind-inline-data", inline_data},
	{"signals-default", signals_default},
	{"signals-ignored", signals_ignored},
	{"signals-handler-before", signals_handler_before},
	{"signals-handler-after", signals_handler_after},
	{"signals-handler-of-other-calls", signals_handler_of_other_calls},
	{"signals-blocked", signals_blocked},
	{"signals-in-a-vforked-child", signals_in_a_vforked_child},
	{"paging-on-demand", paging_on_demand},
	{"paging-implicit", paging_implicit},
	{"paging-advice", paging_advice},
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof(*scenarios));
}
