/* Actions of the program for SIGSEGV and SIGBUS: requests on absent memory call none of them, and faults of
 * the program itself call the right one. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absent.h"
#include "check.h"

static sigjmp_buf back;
static volatile sig_atomic_t calls;
static void *volatile seen_address;
static volatile sig_atomic_t was_masked, was_on_stack;
static char stack[1 << 16];
/* A page without rights. */
static char *forbidden;

static void on_info(int signal, siginfo_t *info, void *context)
{
	char here;
	sigset_t mask;
	(void)signal, (void)context;
	calls++;
	seen_address = info->si_addr;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	was_masked = sigismember(&mask, SIGUSR1);
	was_on_stack = &here >= stack && &here < stack + sizeof stack;
	siglongjmp(back, 1);
}

static void on_signal(int signal)
{
	(void)signal;
	calls++;
	siglongjmp(back, 1);
}

/* Installs the handler with these flags, which masks SIGUSR1. */
static void install(int flags)
{
	struct sigaction action = {.sa_flags = flags};
	if (flags & SA_SIGINFO)
		action.sa_sigaction = on_info;
	else
		action.sa_handler = on_signal;
	sigaddset(&action.sa_mask, SIGUSR1);
	CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
}

static void prepare(void)
{
	stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
	CHECK_EQ(sigaltstack(&alternative, NULL), 0);
	forbidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(forbidden != MAP_FAILED);
}

static void touch(void)
{
	*(volatile char *)(forbidden + 123) = 1;
}

static void touch_behind_a_file(void)
{
	int fd = memfd_create("empty", MFD_CLOEXEC);
	char *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	(void)*(volatile char *)at;
}

static void send_itself(void)
{
	raise(SIGSEGV);
}

static void kill_itself(void)
{
	kill(getpid(), SIGBUS);
}

static void nothing(void)
{
}

static void ignore_faults(void)
{
	signal(SIGSEGV, SIG_IGN);
	signal(SIGBUS, SIG_IGN);
}

/* Checks that a child that prepares and then does something is ended by this signal; 0 for none. */
static void check_ended_by(void (*first)(void), void (*then)(void), int expected)
{
	int status;
	fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		first();
		then();
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, expected);
}

void check_faults_end_the_process(void)
{
	check_ended_by(nothing, touch, SIGSEGV);
	check_ended_by(nothing, touch_behind_a_file, SIGBUS);
	check_ended_by(nothing, send_itself, SIGSEGV);
	check_ended_by(nothing, kill_itself, SIGBUS);
}

/* Checks that the handler that `install` has installed with these flags is called as the kernel calls it. */
static void check_handler(volatile int flags)
{
	for (volatile int i = 0; i < 3; i++) {
		calls = 0;
		if (!sigsetjmp(back, 1))
			touch();
		CHECK_EQ(calls, 1);
		if (flags & SA_SIGINFO) {
			CHECK(seen_address == forbidden + 123);
			CHECK_EQ(was_masked, 1);
			CHECK_EQ(was_on_stack, !!(flags & SA_ONSTACK));
		}
		calls = 0;
		if (!sigsetjmp(back, 1))
			send_itself();
		CHECK_EQ(calls, 1);
	}
	calls = 0;
	if (!sigsetjmp(back, 1))
		touch_behind_a_file();
	CHECK_EQ(calls, 1);
	calls = 0;
}

/* For a handler that is used up by its first call. */
static void touch_twice(void)
{
	if (!sigsetjmp(back, 1))
		touch();
	touch();
}

void signals_default(void)
{
	prepare();
	run_operations(UNMAPPED);
	run_operations(TRUNCATED);
	check_faults_end_the_process();
}

void signals_ignored(void)
{
	prepare();
	ignore_faults();
	run_operations(UNMAPPED);
	run_operations(TRUNCATED);
	check_ended_by(nothing, touch, SIGSEGV);
	check_ended_by(nothing, touch_behind_a_file, SIGBUS);
	check_ended_by(nothing, send_itself, 0);
	check_ended_by(nothing, kill_itself, 0);
	check_ended_by(ignore_faults, send_itself, 0);
}

static const int all_flags[] = {0, SA_SIGINFO, SA_SIGINFO | SA_ONSTACK,
				SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART};

/* A handler that is there before the device is opened. It needs no help of another library. */
void signals_handler_before(void)
{
	int flags = SA_SIGINFO | SA_ONSTACK;
	prepare();
	install(flags);
	run_operations(UNMAPPED);
	run_operations(TRUNCATED);
	CHECK_EQ(calls, 0);
	check_handler(flags);
}

static void install_once(void)
{
	install(SA_RESETHAND);
}

/* Handlers that are installed when the device is open. */
void signals_handler_after(void)
{
	struct endpoint endpoint;
	prepare();
	open_endpoint(&endpoint, MESSAGE, 16);
	for (size_t i = 0; i < sizeof all_flags / sizeof *all_flags; i++) {
		struct sigaction old;
		install(all_flags[i]);
		run_operations(i % 2 ? UNMAPPED : TRUNCATED);
		CHECK_EQ(calls, 0);
		/* A query returns the program's own action. */
		CHECK_EQ(sigaction(SIGSEGV, NULL, &old), 0);
		CHECK_EQ(old.sa_flags & ~0x04000000, all_flags[i]);
		CHECK(all_flags[i] & SA_SIGINFO ? old.sa_sigaction == on_info
						: old.sa_handler == on_signal);
		CHECK(sigismember(&old.sa_mask, SIGUSR1));
		CHECK(!sigismember(&old.sa_mask, SIGUSR2));
		check_handler(all_flags[i]);
	}
	check_ended_by(install_once, touch_twice, SIGSEGV);
	CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
	CHECK(signal(SIGBUS, SIG_DFL) != SIG_ERR);
	run_operations(UNMAPPED);
	check_faults_end_the_process();
	close_endpoint(&endpoint);
}

static void sysv(void)
{
	sysv_signal(SIGSEGV, on_signal);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* The other calls that choose a handler. */
void signals_handler_of_other_calls(void)
{
	struct endpoint endpoint;
	struct sigaction action;
	prepare();
	open_endpoint(&endpoint, MESSAGE, 16);
	CHECK(signal(SIGSEGV, on_signal) == SIG_DFL);
	CHECK(signal(SIGSEGV, on_signal) == on_signal);
	CHECK(signal(SIGBUS, on_signal) == SIG_DFL);
	run_operations(UNMAPPED);
	run_operations(TRUNCATED);
	CHECK_EQ(calls, 0);
	check_handler(0);
	CHECK_EQ(sigaction(SIGSEGV, NULL, &action), 0);
	CHECK_EQ(action.sa_flags & SA_RESTART, SA_RESTART);
	check_ended_by(sysv, touch_twice, SIGSEGV);
	CHECK(sigset(SIGSEGV, SIG_DFL) == on_signal);
	CHECK(sigset(SIGSEGV, SIG_HOLD) == SIG_DFL);
	CHECK(sigset(SIGSEGV, on_signal) == SIG_HOLD);
	CHECK_EQ(sigignore(SIGBUS), 0);
	run_operations(UNMAPPED);
	check_ended_by(nothing, kill_itself, 0);
	check_ended_by(nothing, touch_behind_a_file, SIGBUS);
	close_endpoint(&endpoint);
}

static void leave(int signal)
{
	(void)signal;
	_exit(7);
}

/* What programs do in a child after vfork before they call exec. Returns true if each call returns the action
 * that was the child's before. */
static int reset_actions(void)
{
	struct sigaction old, action = {.sa_handler = SIG_DFL};
	return sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_sigaction == on_info &&
	       sigaction(SIGSEGV, &action, &old) == 0 && old.sa_sigaction == on_info &&
	       sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == SIG_DFL &&
	       signal(SIGBUS, SIG_IGN) == (sighandler_t)(uintptr_t)on_info &&
	       signal(SIGBUS, SIG_DFL) == SIG_IGN;
}

/* Runs a child that has the memory of this process. Returns its status. */
static int run_vforked(void (*child_does)(void))
{
	int status;
	pid_t child = vfork();
	CHECK(child >= 0);
	if (child == 0) {
		child_does();
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	return status;
}

static void reset_and_leave(void)
{
	_exit(reset_actions() ? 7 : 1);
}

static void reset_and_send(void)
{
	reset_actions();
	send_itself();
}

static void exit_by_mistake(void)
{
	exit(7);
}

static void check_vforked(int flags)
{
	struct sigaction old;
	install(flags);
	int status = run_vforked(reset_and_leave);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 7);
	CHECK_EQ(WTERMSIG(run_vforked(reset_and_send)), SIGSEGV);
	int before = threads();
	CHECK_EQ(WEXITSTATUS(run_vforked(exit_by_mistake)), 7);
	CHECK_EQ(threads(), before);
	/* The parent's actions are as they were. */
	CHECK_EQ(sigaction(SIGSEGV, NULL, &old), 0);
	CHECK(old.sa_sigaction == on_info);
	check_handler(flags);
	run_operations(UNMAPPED);
	CHECK_EQ(calls, 0);
}

/* A child after vfork has the memory of its parent, and actions of its own. */
void signals_in_a_vforked_child(void)
{
	struct sigaction once = {.sa_handler = leave, .sa_flags = SA_RESETHAND}, old;
	struct endpoint endpoint;
	prepare();
	open_endpoint(&endpoint, MESSAGE, 16);
	check_vforked(SA_SIGINFO | SA_ONSTACK);
	/* A handler that a child has used up is there in its parent. */
	CHECK_EQ(sigaction(SIGSEGV, &once, NULL), 0);
	int status = run_vforked(send_itself);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 7);
	CHECK_EQ(sigaction(SIGSEGV, NULL, &old), 0);
	CHECK(old.sa_handler == leave);
	/* A child after fork has actions of its own, and so have its children. */
	fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		install(SA_SIGINFO);
		CHECK_EQ(WEXITSTATUS(run_vforked(reset_and_leave)), 7);
		check_handler(SA_SIGINFO);
		_exit(0);
	}
	expect_success_of(child);
	CHECK_EQ(sigaction(SIGSEGV, NULL, &old), 0);
	CHECK(old.sa_handler == leave);
	close_endpoint(&endpoint);
}

static void *run_blocked(void *argument)
{
	(void)argument;
	run_operations(UNMAPPED);
	run_operations(TRUNCATED);
	return NULL;
}

/* A thread that blocks all signals, as those of programs do that have one thread for signals. */
void signals_blocked(void)
{
	sigset_t all;
	pthread_t thread;
	prepare();
	sigfillset(&all);
	CHECK_EQ(pthread_sigmask(SIG_BLOCK, &all, NULL), 0);
	CHECK_EQ(pthread_create(&thread, NULL, run_blocked, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}
