/* Wrong arguments: each function fails as that of rdma-core with rxe, and nothing crashes. */
#include "arguments.h"
#include "check.h"

static const struct scenario scenarios[] = {
	{"devices-and-texts", devices_and_texts},
	{"queries", queries},
	{"unsupported", unsupported},
	{"registrations", registrations},
	{"registrations-again", registrations_again},
	{"null-region", null_region},
	{"library-buffers", library_buffers},
	{"completion-queues", completion_queues},
	{"small-queues", small_queues},
	{"overruns", overruns},
	{"shared-receive-queues", shared_receive_queues},
	{"queue-pair-creation", queue_pair_creation},
	{"queue-pair-transitions", queue_pair_transitions},
	{"public-fields", public_fields},
	{"sent-immediate-data", sent_immediate_data},
	{"attributes-beyond-their-fields", attributes_beyond_their_fields},
	{"addresses", addresses},
	{"refused-requests", refused_requests},
	{"unaligned-requests", unaligned_requests},
	{"posted-lists-are-copied", posted_lists_are_copied},
	{"full-queues", full_queues},
	{"unpolled-sends", unpolled_sends},
	{"unpolled-extended", unpolled_extended},
	{"unpolled-unsignaled", unsignaled_sends},
	{"unpolled-flushed", flushed_sends},
	{"unpolled-before-reset", places_after_reset},
	{"unpolled-receives", unpolled_receives},
	{"failed-requests", failed_requests},
	{"builder-requests", builder_requests},
	{"inline-data", inline_data},
	{"datagrams", datagrams},
	{"datagrams-to-several", datagrams_to_several},
	{"extended-polls", extended_polls},
	{"domains", domains},
	{"moderation", moderation},
	{"granted-inline-data", granted_inline_data},
	{"no-dma-buffers", no_dma_buffers},
	{"memory-files", memory_files},
	{"dma-buffers", dma_buffers},
};

int main(int argc, char **argv)
{
	return run_scenario(argc, argv, scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}
