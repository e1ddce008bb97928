/*
 * Checks what MPI carries between hosts: an allreduce whose sums are known, and messages of many
 * sizes sent around the ring of ranks, each byte checked. Prints "checked" and the number of bytes
 * that rank 0 has sent, as the messages of the ring alone show them.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (4 << 20)

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static unsigned char byte_of(int rank, int round, long i)
{
    return (unsigned char)(i * 7 + rank * 31 + round * 13);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    long sent = 0;
    for (long count = 1; count <= LARGEST / 8; count *= 8) {
        double *values = malloc(count * sizeof *values), *sums = malloc(count * sizeof *sums);
        for (long i = 0; i < count; i++)
            values[i] = (double)(i % 1000) + rank;
        MPI_Allreduce(values, sums, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (long i = 0; i < count; i++)
            require(sums[i] == (double)(i % 1000) * size + size * (size - 1) / 2,
                    "a sum of the allreduce");
        free(values);
        free(sums);
    }

    unsigned char *out = malloc(LARGEST), *in = malloc(LARGEST);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int round = 0;
    for (unsigned length = 1; length <= LARGEST; length = length * 4 + round, round++) {
        for (unsigned i = 0; i < length; i++)
            out[i] = byte_of(rank, round, i);
        memset(in, 0, length);
        MPI_Sendrecv(out, length, MPI_BYTE, next, round, in, length, MPI_BYTE, before, round,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (unsigned i = 0; i < length; i++)
            require(in[i] == byte_of(before, round, i), "a byte of a message");
        sent += length;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("checked %d ranks, sent %ld bytes\n", size, sent);
    MPI_Finalize();
    return 0;
}
