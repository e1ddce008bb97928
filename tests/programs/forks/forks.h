/* Processes that a program makes before, while and after it uses a device. */
#ifndef FORKS_H
#define FORKS_H

#include <stdbool.h>
#include <sys/types.h>

/* What the program does with the device when it makes a child. */
enum moment { BEFORE, OPEN, CLOSED, MEANWHILE, MOMENTS };

/* How it makes the child. */
enum way { FORK, DOUBLE_FORK, DAEMON, CLONE, VFORK, SPAWN, WAYS };

/* What the child does. */
enum deed { LIVES, EXITS, EXECS, USES, DEEDS };

/* A child, which goes on until it is released. */
struct child {
	/* The process to wait for: of a daemon, one that has ended. */
	pid_t pid;
	/* Tells a status of a child that lives on, and is closed when it has ended. */
	int report;
	/* Closed to release it. */
	int hold;
};

/* Makes a child, and waits until it has done its deed. */
struct child make_child(enum way way, enum deed deed, unsigned seed);

/* What a program does that a child has started, with these descriptors. */
void started(const char *fds);

/* Releases a child, and checks that it has found all as it has to be. */
void end_child(struct child child);

/* Notes which descriptors are open: those that a child may have. */
void note_descriptors(void);
void note_descriptor(int fd);

/* Returns the number of descriptors and mappings of sockets beyond those noted. */
int surplus(void);

/* Opens descriptors of the program's own, and checks that they are what they were. */
void open_own(void);
void check_own(void);
void close_own(void);

/* Waits until the threads of the device have slept for a while. */
void wait_for_others(void);

/* Scenarios beside the table. */
void own_device(void);
void made_meanwhile(void);
void closed_descriptors(void);
void closed_while_open(void);
void exit_when_closed(void);
void path_when_closed(void);
void one_thread(void);
void locked_memory(void);
void stray(void);
void other_user(void);
void replaced_descriptors(void);
void unshared_descriptors(void);
void handlers_of_fork(void);

#endif
