/* Commands of /dev/infiniband/rdma_cm. */
#ifndef RDMA_CM_H
#define RDMA_CM_H

#include <rdma/rdma_user_cm.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* A command that newer headers name: the program raises an event of its own. */
enum { WRITE_CM_EVENT = 24 };
struct write_cm_event {
	uint32_t id, reserved, event, status;
	uint64_t argument;
	char rest[296];
};

/* Writes a command with the first `in` bytes of a structure. Returns what write returns. */
static inline ssize_t command(int fd, uint32_t number, const void *structure, uint16_t in,
			      uint16_t out)
{
	struct {
		struct rdma_ucm_cmd_hdr header;
		char structure[400];
	} written = {{number, in, out}, {0}};
	memcpy(written.structure, structure, in);
	return write(fd, &written, sizeof written.header + in);
}

#define COMMAND(fd, number, structure, out) command(fd, number, &(structure), sizeof(structure), out)

#endif
