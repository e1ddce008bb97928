/* Memory that is registered by a descriptor. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/udmabuf.h>

#include "arguments.h"
#include "check.h"
#include "endpoint.h"

enum { PAGE = 4096, PAGES = 4, OFFSET = 100, IOVA = 0x70000000 };

static const int rights =
	IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

static int memory_file(void)
{
	int file = memfd_create("memory", MFD_ALLOW_SEALING);
	CHECK(file >= 0);
	CHECK_EQ(ftruncate(file, PAGES * PAGE), 0);
	return file;
}

/* Descriptors that no variable lets a program register. */
void no_dma_buffers(void)
{
	struct endpoint endpoint;
	int ends[2];
	open_endpoint(&endpoint, PAGE, 4);
	struct ibv_pd *pd = endpoint.pd;
	/* NCCL asks so, with nothing else set. */
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0), EOPNOTSUPP);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, -1, rights), EOPNOTSUPP);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, -2, rights), EBADF);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, 1000, rights), EBADF);
	CHECK_EQ(pipe(ends), 0);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, ends[0], rights), EINVAL);
	int file = open("/proc/self/exe", O_RDONLY);
	CHECK(file >= 0);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, file, IBV_ACCESS_REMOTE_READ), EINVAL);
	if (!getenv("ROCE_DMABUF")) {
		int memory = memory_file();
		CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, memory, rights), EINVAL);
		close(memory);
	}
	close(file);
	close(ends[0]);
	close(ends[1]);
	close_endpoint(&endpoint);
}

/* Reads or writes `length` bytes between the start of the buffer and an address of a region. */
static enum ibv_wc_status move(struct endpoint *endpoint, struct ibv_mr *mr, enum ibv_wr_opcode how,
			       uint64_t at, uint32_t length)
{
	struct connection connection = connect_to_self(endpoint, 4);
	CHECK_EQ(post_rdma(connection.left, endpoint, how, 0, length, at, mr->rkey, 1), 0);
	enum ibv_wc_status status = next_completion(endpoint->cq).status;
	disconnect(&connection);
	return status;
}

/* Returns the number of mappings of files of this name. */
static int mappings(const char *name)
{
	char line[512];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		found += strstr(line, name) != NULL;
	fclose(maps);
	return found;
}

/* Attributes of ibv_reg_mr_ex, which newer headers declare. */
struct attributes {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};
enum { MASK_IOVA = 1, MASK_ADDR = 1 << 1, MASK_FD = 1 << 2, MASK_FD_OFFSET = 1 << 3 };

/* The same by attributes: descriptor, offset and address all have to be there, and nothing else. */
static void use_attributes(struct endpoint *endpoint, int buffer, unsigned char *bytes)
{
	typedef struct ibv_mr *enroll(struct ibv_pd *, struct attributes *);
	enroll *reg_mr_ex = (enroll *)dlvsym(RTLD_DEFAULT, "ibv_reg_mr_ex", "IBVERBS_1.15");
	CHECK(reg_mr_ex);
	const uint64_t all = MASK_FD | MASK_FD_OFFSET | MASK_IOVA;
	struct attributes attributes = {.length = PAGE,
					.access = rights,
					.comp_mask = all,
					.iova = IOVA,
					.fd = buffer,
					.fd_offset = PAGE};
	const uint64_t wrong[] = {MASK_FD, MASK_FD | MASK_IOVA, MASK_FD | MASK_FD_OFFSET,
				  MASK_FD_OFFSET | MASK_IOVA, all | MASK_ADDR};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		attributes.comp_mask = wrong[i];
		CHECK_NULL(reg_mr_ex(endpoint->pd, &attributes), EINVAL);
	}
	attributes.comp_mask = all;
	struct ibv_mr *mr = reg_mr_ex(endpoint->pd, &attributes);
	CHECK(mr);
	bytes[PAGE] = 99;
	CHECK_EQ(move(endpoint, mr, IBV_WR_RDMA_READ, IOVA, 1), IBV_WC_SUCCESS);
	CHECK_EQ(endpoint->buffer[0], 99);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/* What holds for each buffer of PAGES pages. `bytes` is the program's own mapping of it. */
static void use(struct endpoint *endpoint, int buffer, unsigned char *bytes, const char *name)
{
	struct ibv_pd *pd = endpoint->pd;
	const size_t length = PAGES * PAGE;
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, 0, 0, buffer, rights), EINVAL);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, length + 1, 0, buffer, rights), EINVAL);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, PAGE, length, 0, buffer, rights), EINVAL);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, UINT64_MAX - PAGE + 1, length, 0, buffer, rights), EINVAL);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE_MAX, 0, buffer, rights), EINVAL);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, UINT64_MAX - PAGE + 1, buffer, rights), EINVAL);
	/* Another offset in the page, rights that need another, and flags of other memory. */
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, OFFSET, PAGE, IOVA, buffer, rights), EINVAL);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, buffer, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, buffer, rights | IBV_ACCESS_ON_DEMAND), EINVAL);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, buffer, rights | IBV_ACCESS_ZERO_BASED), EINVAL);

	/* From the middle of a page to the middle of another, at an address of the program's choice. */
	const uint64_t first = PAGE + OFFSET, iova = IOVA + OFFSET;
	const uint32_t len = 2 * PAGE;
	int before = mappings(name);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, first, len, iova, buffer, rights);
	CHECK(mr);
	CHECK(mr->pd == pd && mr->context == endpoint->context && mr->length == len);
	CHECK_EQ((uintptr_t)mr->addr, first);
	CHECK_EQ(mappings(name), before + 1);
	fill(endpoint->buffer, len, 7);
	CHECK_EQ(move(endpoint, mr, IBV_WR_RDMA_WRITE, iova, len), IBV_WC_SUCCESS);
	CHECK(is_filled(bytes + first, len, 7));
	CHECK(bytes[first - 1] == 0 && bytes[first + len] == 0);
	fill(bytes + first, len, 8);
	CHECK_EQ(move(endpoint, mr, IBV_WR_RDMA_READ, iova, len), IBV_WC_SUCCESS);
	CHECK(is_filled(endpoint->buffer, len, 8));
	CHECK_EQ(move(endpoint, mr, IBV_WR_RDMA_READ, iova + 1, len), IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(move(endpoint, mr, IBV_WR_RDMA_READ, 0, 8), IBV_WC_REM_ACCESS_ERR);
	/* Its memory is another's to change. */
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, rights),
		 IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(mappings(name), before);

	use_attributes(endpoint, buffer, bytes);

	/* Several regions of one buffer, of which each has its own mapping; the descriptor may go. */
	int another = dup(buffer);
	struct ibv_mr *one = ibv_reg_dmabuf_mr(pd, 0, length, 0, another, rights);
	struct ibv_mr *two = ibv_reg_dmabuf_mr(pd, 0, PAGE, PAGE, another, IBV_ACCESS_REMOTE_READ);
	close(another);
	CHECK(one && two);
	CHECK_EQ(ibv_dereg_mr(one), 0);
	bytes[0] = 77;
	CHECK_EQ(move(endpoint, two, IBV_WR_RDMA_READ, PAGE, 1), IBV_WC_SUCCESS);
	CHECK_EQ(endpoint->buffer[0], 77);
	CHECK_EQ(ibv_dereg_mr(two), 0);
	CHECK_EQ(mappings(name), before);
}

static unsigned char *map(int file)
{
	void *bytes = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(bytes != MAP_FAILED);
	return bytes;
}

/* Where ROCE_DMABUF says so, a memory file is taken for a DMA buffer. */
void memory_files(void)
{
	const char *variable = getenv("ROCE_DMABUF");
	if (!variable || strcmp(variable, "memfd"))
		return;
	struct endpoint endpoint;
	open_endpoint(&endpoint, PAGES * PAGE, 16);
	int file = memory_file();
	unsigned char *bytes = map(file);
	use(&endpoint, file, bytes, "/memfd:memory");

	/* A file of which the library gets no right to write. */
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	int readable = open(path, O_RDONLY);
	CHECK(readable >= 0);
	CHECK_NULL(ibv_reg_dmabuf_mr(endpoint.pd, 0, PAGE, 0, readable, rights), EACCES);
	struct ibv_mr *mr =
		ibv_reg_dmabuf_mr(endpoint.pd, 0, PAGE, 0, readable, IBV_ACCESS_REMOTE_READ);
	CHECK(mr);
	CHECK_EQ(ibv_dereg_mr(mr), 0);

	/* Pages that the file loses while it is registered fail the request alone. */
	mr = ibv_reg_dmabuf_mr(endpoint.pd, 0, PAGES * PAGE, 0, file, rights);
	CHECK(mr);
	CHECK_EQ(ftruncate(file, PAGE), 0);
	CHECK_EQ(move(&endpoint, mr, IBV_WR_RDMA_WRITE, 0, PAGE), IBV_WC_SUCCESS);
	CHECK_EQ(move(&endpoint, mr, IBV_WR_RDMA_WRITE, 2 * PAGE, 8), IBV_WC_REM_OP_ERR);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	munmap(bytes, PAGES * PAGE);
	close(readable);
	close(file);
	close_endpoint(&endpoint);
}

/* Returns a DMA buffer of /dev/udmabuf; -1 where the machine does not have it. */
static int buffer_of_udmabuf(void)
{
	int device = open("/dev/udmabuf", O_RDWR);
	if (device < 0)
		return -1;
	int file = memory_file();
	CHECK_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	struct udmabuf_create create = {.memfd = (uint32_t)file, .size = PAGES * PAGE};
	int buffer = ioctl(device, UDMABUF_CREATE, &create);
	CHECK(buffer >= 0);
	close(file);
	close(device);
	return buffer;
}

/* Of drm.h and drm_mode.h, which packages of their own have. */
struct drm_version {
	int version[3];
	size_t name_len;
	char *name;
	size_t date_len;
	char *date;
	size_t desc_len;
	char *desc;
};
struct drm_dumb {
	uint32_t height, width, bpp, flags, handle, pitch;
	uint64_t size;
};
struct drm_prime {
	uint32_t handle, flags;
	int32_t fd;
};
#define DRM_VERSION _IOWR('d', 0x00, struct drm_version)
#define DRM_CREATE_DUMB _IOWR('d', 0xb2, struct drm_dumb)
#define DRM_HANDLE_TO_FD _IOWR('d', 0x2d, struct drm_prime)

/* Returns a DMA buffer of the graphics card without hardware, vgem; -1 where the machine does not have it. */
static int buffer_of_vgem(void)
{
	char name[16] = "";
	struct drm_version version = {.name = name, .name_len = sizeof(name) - 1};
	int device = open("/dev/dri/card0", O_RDWR);
	if (device < 0)
		return -1;
	if (ioctl(device, DRM_VERSION, &version) || strcmp(name, "vgem")) {
		close(device);
		return -1;
	}
	struct drm_dumb create = {.height = PAGES, .width = PAGE / 4, .bpp = 32};
	CHECK_EQ(ioctl(device, DRM_CREATE_DUMB, &create), 0);
	CHECK_EQ(create.size, PAGES * PAGE);
	struct drm_prime handle = {.handle = create.handle, .flags = O_RDWR};
	CHECK_EQ(ioctl(device, DRM_HANDLE_TO_FD, &handle), 0);
	close(device);
	return handle.fd;
}

/* Real DMA buffers, where the machine makes some. With HAS_DMA_BUFFERS in the environment it must. */
void dma_buffers(void)
{
	int (*const makers[])(void) = {buffer_of_udmabuf, buffer_of_vgem};
	struct endpoint endpoint;
	int made = 0;
	open_endpoint(&endpoint, PAGES * PAGE, 16);
	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
		int buffer = makers[i]();
		if (buffer < 0)
			continue;
		unsigned char *bytes = map(buffer);
		use(&endpoint, buffer, bytes, "dmabuf");
		munmap(bytes, PAGES * PAGE);
		close(buffer);
		made++;
	}
	CHECK(made > 0 || !getenv("HAS_DMA_BUFFERS"));
	close_endpoint(&endpoint);
}
