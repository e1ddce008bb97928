/* Memory that can be lost. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absent.h"
#include "check.h"

#define PAGE 4096
#define HUGE_PAGE (2u << 20)

/* Takes all huge pages that the machine has free, for as long as the process lives. */
static void take_free_huge_pages(void)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE;
	while (mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED)
		;
}

void make_memory(struct memory *memory, struct endpoint *endpoint, enum loss loss)
{
	int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	memory->length = 3 * PAGE;
	memory->fd = -1;
	if (loss == TRUNCATED) {
		memory->fd = memfd_create("memory", MFD_CLOEXEC);
		CHECK(memory->fd >= 0);
		CHECK_EQ(ftruncate(memory->fd, memory->length), 0);
		flags = MAP_SHARED;
	} else if (loss == NO_HUGE_PAGE) {
		take_free_huge_pages();
		memory->length = HUGE_PAGE;
		flags |= MAP_HUGETLB | MAP_NORESERVE;
		access |= IBV_ACCESS_ON_DEMAND;
	}
	memory->at = mmap(NULL, memory->length, rights, flags, memory->fd, 0);
	CHECK(memory->at != MAP_FAILED);
	if (loss != NO_HUGE_PAGE)
		memset(memory->at, 1, memory->length);
	else
		/* Without paging on demand it is found when it is registered. */
		CHECK_NULL(ibv_reg_mr(endpoint->pd, memory->at, memory->length, IBV_ACCESS_LOCAL_WRITE),
			   EFAULT);
	memory->mr = ibv_reg_mr(endpoint->pd, memory->at, memory->length, access);
	CHECK(memory->mr);
}

void lose(struct memory *memory, enum loss loss)
{
	unsigned char *at = memory->at + PAGE;
	switch (loss) {
	case UNMAPPED:
		CHECK_EQ(munmap(at, PAGE), 0);
		break;
	case PROTECTED:
		CHECK_EQ(mprotect(at, PAGE, PROT_NONE), 0);
		break;
	case READ_ONLY:
		CHECK_EQ(mprotect(at, PAGE, PROT_READ), 0);
		break;
	case TRUNCATED:
		CHECK_EQ(ftruncate(memory->fd, PAGE), 0);
		break;
	case GIVEN_BACK:
		CHECK_EQ(madvise(at, PAGE, MADV_DONTNEED), 0);
		break;
	default:
		break;
	}
}

void free_memory(struct memory *memory)
{
	CHECK_EQ(ibv_dereg_mr(memory->mr), 0);
	CHECK_EQ(munmap(memory->at, memory->length), 0);
	if (memory->fd >= 0)
		close(memory->fd);
}
