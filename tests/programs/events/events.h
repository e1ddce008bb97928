/* The scenarios, by the file that they are in. */
#ifndef EVENTS_H
#define EVENTS_H

#include "endpoint.h"

/* pollers.c */
void pollers_of_a_queue(void);
void pollers_of_an_extended_queue(void);
void pollers_of_a_single_threaded_queue(void);

/* destroyed.c */
void destroyed_queue_leaves_nothing(void);
void destroyed_queue_leaves_others(void);
void destroyed_objects_leave_no_event(void);
void destroyed_channels_leave_no_descriptor(void);

/* channel.c */
void channel_with_a_thread_that_blocks(void);
void channel_with_a_thread_that_polls(void);
void channel_with_a_thread_of_epoll(void);
void channel_with_an_executor(void);
void channel_with_many_pollers(void);

/* descriptors.c */
void descriptors_as_those_of_the_kernel(void);
void signals_of_which_some_restart_calls(void);

/* cancel.c */
void cancelled_wait_for_completions(void);
void cancelled_wait_for_events(void);
void cancelled_asynchronously(void);
void cancelled_where_that_is_disabled(void);
void cancelled_before_other_calls(void);

/* exit.c */
void exit_then_wait(void);
void exit_then_join_a_thread_that_waits(void);
void exit_then_poll_the_descriptor(void);
void exit_then_wait_for_an_event(void);

/* tearing.c */
void tearing_of_messages_that_arrive(void);
void tearing_of_messages_that_are_sent(void);
void tearing_beside_atomics(void);

/* Returns a number of rounds: the given one, a small one where a tool makes everything slow, or that of
 * the variable ROUNDS. */
int rounds(int count);

/* Makes a descriptor non-blocking. */
void make_non_blocking(int fd);

/* Returns true if a descriptor is readable now. */
bool is_readable(int fd);

#endif
