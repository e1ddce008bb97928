/* The scenarios, by the file that they are in. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <stdbool.h>

/* queries.c */
void devices_and_texts(void);
void queries(void);
void unsupported(void);

/* memory.c */
void registrations(void);
void registrations_again(void);
void null_region(void);

/* buffers.c */
void library_buffers(void);

/* queues.c */
void completion_queues(void);
void small_queues(void);
void shared_receive_queues(void);

/* queue_pairs.c */
void queue_pair_creation(void);
void queue_pair_transitions(void);
void attributes_beyond_their_fields(void);
void addresses(void);

/* fields.c */
void public_fields(void);
void sent_immediate_data(void);

/* overruns.c */
void overruns(void);

/* requests.c */
void refused_requests(void);
void unaligned_requests(void);
void posted_lists_are_copied(void);
void full_queues(void);
void failed_requests(void);
void builder_requests(void);

/* places.c */
void unpolled_sends(void);
void unpolled_extended(void);
void unsignaled_sends(void);
void flushed_sends(void);
void places_after_reset(void);
void unpolled_receives(void);

/* allocations.c */
void inline_data(void);

/* datagrams.c */
void datagrams(void);
void datagrams_to_several(void);

/* extended.c */
void extended_polls(void);
void domains(void);

/* transports.c */
void moderation(void);
void granted_inline_data(void);

/* dma_buffers.c */
void no_dma_buffers(void);
void memory_files(void);
void dma_buffers(void);

/* Ends the process unless errno is one of two values: kernels and providers differ. */
#define CHECK_ONE_OF(found, one, other)                                               \
	do {                                                                          \
		int number_ = (found);                                                \
		if (number_ != (one) && number_ != (other))                           \
			check_unequal(__FILE__, __LINE__, #found, number_, one);      \
	} while (0)

#endif
