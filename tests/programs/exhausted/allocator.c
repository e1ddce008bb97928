/* The allocator of the program and its libraries: it counts, and fails where it is told to. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>

#include "check.h"
#include "exhausted.h"

void *__libc_malloc(size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

/* Allocations that were not freed, of all threads. */
static long live;

/* Calls of the calling thread. */
static __thread long own_calls;

/* Allocations until one fails, of all threads; negative: none does. */
static long until_failure = -1;
static bool is_lasting, has_failed;

void fail_allocations_from(long number, bool lasting)
{
	is_lasting = lasting;
	has_failed = false;
	__atomic_store_n(&until_failure, number, __ATOMIC_SEQ_CST);
}

long live_allocations(void)
{
	return __atomic_load_n(&live, __ATOMIC_SEQ_CST);
}

long own_calls_of_allocator(void)
{
	return own_calls;
}

bool stop_failing(void)
{
	__atomic_store_n(&until_failure, -1, __ATOMIC_SEQ_CST);
	return has_failed;
}

static bool fails(void)
{
	long left = __atomic_load_n(&until_failure, __ATOMIC_SEQ_CST);
	if (left < 0)
		return false;
	if (left == 0)
		has_failed = true;
	/* Another thread may have stopped it, or have been the one. */
	if (left > 0 || !is_lasting)
		__atomic_compare_exchange_n(&until_failure, &left, left - 1, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	if (left == 0)
		errno = ENOMEM;
	return left == 0;
}

static void *counted(void *memory)
{
	own_calls++;
	__atomic_add_fetch(&live, memory != NULL, __ATOMIC_SEQ_CST);
	return memory;
}

/* In place of those of the C library, for this program and the libraries that it has. */
void *calloc(size_t count, size_t size)
{
	/* glibc notes the destructors of a thread so, and ends the process where it cannot. */
	bool is_destructor = count == 1 && size == 4 * sizeof(void *);
	return counted(!is_destructor && fails() ? NULL : __libc_calloc(count, size));
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	*memory = counted(fails() ? NULL : __libc_memalign(alignment, size));
	return *memory ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return counted(fails() ? NULL : __libc_memalign(alignment, size));
}

void *malloc(size_t size)
{
	return counted(fails() ? NULL : __libc_malloc(size));
}

void *realloc(void *old, size_t size)
{
	if (!old)
		return counted(fails() ? NULL : __libc_malloc(size));
	void *moved = fails() ? NULL : __libc_realloc(old, size);
	__atomic_sub_fetch(&live, !moved && !size, __ATOMIC_SEQ_CST);
	return moved;
}

void free(void *memory)
{
	own_calls += memory != NULL;
	__atomic_sub_fetch(&live, memory != NULL, __ATOMIC_SEQ_CST);
	__libc_free(memory);
}

void limit_address_space(size_t more)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages;
	CHECK(file && fscanf(file, "%ld", &pages) == 1);
	fclose(file);
	rlim_t end = more == RLIM_INFINITY ? RLIM_INFINITY : (rlim_t)pages * 4096 + more;
	struct rlimit limit = {end, RLIM_INFINITY};
	CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}
