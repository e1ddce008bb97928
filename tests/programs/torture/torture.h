/* The scenarios, by the file that they are in. */
#ifndef TORTURE_H
#define TORTURE_H

/* fork.c */
void fork_before_open(void);
void fork_after_open(void);
void fork_connected(void);
void fork_outstanding(void);
void fork_beside_posting(void);
void fork_after_close(void);
void fork_and_exec(void);
void own_device(void);

/* exit.c */
void exit_in_the_main_thread(void);
void exit_in_a_thread(void);
void exit_after_a_signal(void);
void exit_in_a_call(void);

/* signals.c */
void signals_end_waits_for_completions(void);
void signals_restart_waits_for_completions(void);
void signals_end_waits_for_events(void);
void signals_restart_waits_for_events(void);
void signals_beside_polls(void);

/* threads.c */
void threads_on_one_queue_pair(void);
void threads_on_many_queue_pairs(void);
void threads_open_and_close(void);

/* order.c */
void wrong_order(void);
void unacknowledged_completion_event(void);
void unacknowledged_event(void);

/* closed.c */
void closed_context(void);

/* many.c */
void many_contexts(void);
void many_closed_devices(void);
void many_objects(void);
void many_queue_pairs(void);

/* events.c */
void events_of_two_contexts(void);
void events_of_a_full_completion_queue(void);

/* Returns a number of rounds: the given one, or a small one where a tool makes everything slow. */
int rounds(int count);

#endif
