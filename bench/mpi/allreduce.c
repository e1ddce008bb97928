/* How long MPI_Allreduce takes: sums of floats, out of place, measured as nccl-tests does.
 *
 *   mpicc -O2 -o allreduce_mpi allreduce.c
 *   mpirun -n 2 ./allreduce_mpi -b 4 -e 64M -f 4 -n 20 -w 5
 *
 *   -b SIZE  smallest size in bytes (K, M, G behind it are understood), default 4
 *   -e SIZE  largest size, default: the smallest
 *   -f N     each size is N times the one before, default 2
 *   -n N     operations that are timed for each size, default 20
 *   -w N     operations before them, default 5
 *   -c CPUS  a rank stays on one processor of this list, by its number, as "0,1"; a list that is
 *            shorter than there are ranks starts again. Without it the system chooses.
 *
 * Rank 0 prints one JSON object a line for each size:
 *
 *   {"bytes":4,"us":21.3,"algbw_gbs":0.000188,"busbw_gbs":0.000188,"ranks":2,"wrong":0}
 *
 * "us" is the mean of one operation on the rank that took longest, "busbw_gbs" is bytes / time *
 * 2 (n - 1) / n in 10^9 bytes a second, "wrong" counts elements of all ranks that hold another
 * value than the sum, after one more operation that is not timed. Exit: 0, 1 when a sum was
 * wrong or something failed, 2 for options that make no sense. */

#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST ((uint64_t)1 << 32)
#define MAX_CPUS 64

struct options {
    uint64_t smallest, largest, factor, timed, warm_up;
    int cpus[MAX_CPUS], cpu_count;
};

static int number(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long parsed = strtoull(text, &end, 10);
    if (errno || end == text || *text == '-')
        return 0;
    uint64_t unit = 1;
    switch (*end) {
    case 'K': case 'k': unit = 1 << 10; end++; break;
    case 'M': case 'm': unit = 1 << 20; end++; break;
    case 'G': case 'g': unit = 1 << 30; end++; break;
    }
    if (*end || parsed > most / unit)
        return 0;
    *value = parsed * unit;
    return 1;
}

static int cpu_list(const char *text, struct options *options)
{
    options->cpu_count = 0;
    for (;;) {
        char *end;
        long cpu = strtol(text, &end, 10);
        if (end == text || cpu < 0 || cpu >= CPU_SETSIZE || options->cpu_count == MAX_CPUS)
            return 0;
        options->cpus[options->cpu_count++] = (int)cpu;
        if (!*end)
            return 1;
        if (*end != ',')
            return 0;
        text = end + 1;
    }
}

/* NULL, or the option that makes no sense. */
static const char *parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.smallest = 4, .factor = 2, .timed = 20, .warm_up = 5};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        int fine = 0;
        if (strlen(name) == 2 && name[0] == '-') {
            switch (name[1]) {
            case 'b': fine = number(value, LARGEST, &options->smallest); break;
            case 'e': fine = number(value, LARGEST, &options->largest); break;
            case 'f': fine = number(value, LARGEST, &options->factor); break;
            case 'n': fine = number(value, 100000000, &options->timed); break;
            case 'w': fine = number(value, 100000000, &options->warm_up); break;
            case 'c': fine = cpu_list(value, options); break;
            }
        }
        if (!fine)
            return name;
    }
    if (!options->largest)
        options->largest = options->smallest;
    if (options->smallest < sizeof(float) || options->smallest > options->largest)
        return "-b (4 bytes at least, and not more than -e)";
    if (options->factor < 2 && options->smallest != options->largest)
        return "-f (2 at least)";
    if (!options->timed)
        return "-n (1 at least)";
    return NULL;
}

/* Small whole numbers: their sums are exact in whatever order they are added. */
static float value(uint64_t i, int rank)
{
    return (float)((i % 7 + 1) * (uint64_t)(rank + 1));
}

static void all_reduce(const float *in, float *out, uint64_t count)
{
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Elements of all ranks that are wrong; one operation more. */
static uint64_t wrong_elements(const float *in, float *out, uint64_t count, int ranks)
{
    uint64_t here = 0, everywhere = 0;
    float factor = (float)(ranks * (ranks + 1) / 2);
    memset(out, 0, count * sizeof *out);
    all_reduce(in, out, count);
    for (uint64_t i = 0; i < count; i++)
        here += out[i] != (float)(i % 7 + 1) * factor;
    MPI_Allreduce(&here, &everywhere, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return everywhere;
}

static double seconds_of_one(const struct options *options, const float *in, float *out,
                             uint64_t count)
{
    for (uint64_t i = 0; i < options->warm_up; i++)
        all_reduce(in, out, count);
    MPI_Barrier(MPI_COMM_WORLD);
    double started = MPI_Wtime();
    for (uint64_t i = 0; i < options->timed; i++)
        all_reduce(in, out, count);
    double here = (MPI_Wtime() - started) / (double)options->timed, longest = 0;
    MPI_Allreduce(&here, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

static int stay_on(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    struct options options;
    const char *nonsense = parse(argc, argv, &options);
    if (nonsense) {
        if (rank == 0)
            fprintf(stderr, "allreduce_mpi: %s makes no sense: see the start of allreduce.c\n",
                    nonsense);
        MPI_Finalize();
        return 2;
    }
    if (options.cpu_count && stay_on(options.cpus[rank % options.cpu_count])) {
        fprintf(stderr, "allreduce_mpi: rank %d cannot stay on processor %d: %s\n", rank,
                options.cpus[rank % options.cpu_count], strerror(errno));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }

    uint64_t most = options.largest / sizeof(float);
    float *in = malloc(most * sizeof *in), *out = malloc(most * sizeof *out);
    if (!in || !out) {
        fprintf(stderr, "allreduce_mpi: rank %d has no memory for twice %llu bytes: choose a "
                "smaller -e\n", rank, (unsigned long long)options.largest);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (uint64_t i = 0; i < most; i++)
        in[i] = value(i, rank);
    memset(out, 0, most * sizeof *out);

    uint64_t all_wrong = 0;
    for (uint64_t size = options.smallest; size <= options.largest; size *= options.factor) {
        uint64_t count = size / sizeof(float), bytes = count * sizeof(float);
        double seconds = seconds_of_one(&options, in, out, count);
        uint64_t wrong = wrong_elements(in, out, count, ranks);
        all_wrong += wrong;
        if (rank == 0) {
            double algbw = (double)bytes / seconds / 1e9;
            printf("{\"program\":\"allreduce_mpi\",\"bytes\":%llu,\"us\":%.3f,"
                   "\"algbw_gbs\":%.6f,\"busbw_gbs\":%.6f,\"ranks\":%d,\"iterations\":%llu,"
                   "\"wrong\":%llu}\n",
                   (unsigned long long)bytes, seconds * 1e6, algbw,
                   algbw * 2 * (ranks - 1) / ranks, ranks, (unsigned long long)options.timed,
                   (unsigned long long)wrong);
            fflush(stdout);
        }
        /* Beyond it, or the end of the numbers; a single size has no next. */
        if (options.smallest == options.largest || size > options.largest / options.factor)
            break;
    }
    free(in);
    free(out);
    MPI_Finalize();
    if (all_wrong && rank == 0)
        fprintf(stderr, "allreduce_mpi: wrong sums: these figures mean nothing\n");
    return all_wrong != 0;
}
