/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between two ranks by size, in host memory or in that of a card, or a
 * reduction of all ranks.
 *
 * usage: gaudi_bench_mpi latency|bandwidth|both-ways|allreduce D|H D|H
 *            [SMALLEST LARGEST [SECONDS]]                 under mpiexec -n 2
 *
 * D or H: device or host memory of rank 0, and of the others. Sizes are the
 * powers of two from SMALLEST to LARGEST, in bytes; 1 and 4194304 by default.
 * SECONDS, 0.2 by default, is how long each size is measured, after a warm-up.
 *
 * latency    one message goes there and one comes back: half of that time
 * bandwidth  rank 0 sends a window of messages, and rank 1 answers when all of
 *            them are there
 * both-ways  both ranks send a window of messages, and wait for the other's
 * allreduce  of bytes, by exclusive or; any number of ranks. In device memory
 *            only Open MPI 5.0 can do it
 *
 * Rank 0 prints for each size the median time of a message in microseconds and
 * what that comes to in GB/s (10^9 bytes), of both directions together for
 * both-ways. Each message of a window has memory of its own, since MPI allows
 * no two receives into the same. What the last messages of a size brought is
 * compared byte by byte; a wrong one ends the job with status 1.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucx_gaudi.h>

/* Messages under way, if they fit: of long ones fewer are enough. */
#define WINDOW 64
#define WINDOW_BYTES (64u << 20)

#define LEAST_ROUNDS 5
#define MOST_ROUNDS 20000
#define WARM_UP 11 /* rounds */

enum mode { latency, bandwidth, both_ways, allreduce };

struct settings {
    enum mode mode;
    int on_card; /* of this rank */
    size_t smallest, largest;
    double seconds;
};

/* The same bytes as the CPU sees them are in image; out and in are what MPI
 * gets. In host memory out is image. */
struct buffers {
    unsigned char *image;
    void *out, *in;
};

static int rank, ranks;

/* A message about what went wrong in this rank; gives 0. */
static int failed(const char *what)
{
    fprintf(stderr, "gaudi_bench_mpi: rank %d: %s\n", rank, what);
    return 0;
}

/* Whether all ranks say so. They go on or end together: a rank that ends the
 * job may take its message with it. */
static int all_good(int good)
{
    int all;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Differs for every rank that sends, and from size to size. */
static unsigned char byte_of(int sender, size_t size, size_t offset)
{
    return (unsigned char)(offset * 167 + (offset >> 8) * 13 + size * 7 +
                           (size >> 10) + 101 * (size_t)sender + 1);
}

/* What a rank gets. */
static unsigned char wanted(const struct settings *what, size_t size,
                            size_t offset)
{
    unsigned char all = 0;
    if (what->mode != allreduce) {
        return byte_of(!rank, size, offset);
    }
    for (int i = 0; i < ranks; ++i) {
        all ^= byte_of(i, size, offset);
    }
    return all;
}

static int window_of(const struct settings *what, size_t size)
{
    if ((what->mode == latency) || (what->mode == allreduce)) {
        return 1;
    }
    const size_t fits = WINDOW_BYTES / size;
    return (fits < 1) ? 1 : ((fits < WINDOW) ? (int)fits : WINDOW);
}

static size_t buffer_size(const struct settings *what)
{
    size_t most = 0;
    for (size_t size = what->smallest; size <= what->largest; size *= 2) {
        const size_t bytes = size * (size_t)window_of(what, size);
        most               = (bytes > most) ? bytes : most;
    }
    return most;
}

/* --- memory --------------------------------------------------------------- */

/* These give whether it is so; a message has told why not. */

static int allocate(const struct settings *what, struct buffers *memory)
{
    const size_t size = buffer_size(what);
    memory->image     = malloc(size);
    if (memory->image == NULL) {
        return failed("no memory");
    }
    if (!what->on_card) {
        memory->out = memory->image;
        memory->in  = malloc(size);
        return (memory->in != NULL) || failed("no memory");
    }
    if ((ucx_gaudi_mem_alloc(size, NULL, &memory->out) != UCS_OK) ||
        (ucx_gaudi_mem_alloc(size, NULL, &memory->in) != UCS_OK)) {
        return failed("no card, or no device memory");
    }
    return 1;
}

static void release(const struct settings *what, struct buffers *memory)
{
    if (what->on_card) {
        (void)ucx_gaudi_mem_free(memory->in);
        (void)ucx_gaudi_mem_free(memory->out);
    } else {
        free(memory->in);
    }
    free(memory->image);
}

/* Bytes to send, and none of them where they are to arrive. */
static int fill(const struct settings *what, struct buffers *memory,
                size_t size, size_t total)
{
    for (size_t i = 0; i < total; ++i) {
        memory->image[i] = (unsigned char)~wanted(what, size, i);
    }
    if (!what->on_card) {
        memcpy(memory->in, memory->image, total);
    } else if (ucx_gaudi_mem_copy(memory->in, memory->image, total) != UCS_OK) {
        return failed("cannot write device memory");
    }
    for (size_t i = 0; i < total; ++i) {
        memory->image[i] = byte_of(rank, size, i);
    }
    if (what->on_card &&
        (ucx_gaudi_mem_copy(memory->out, memory->image, total) != UCS_OK)) {
        return failed("cannot write device memory");
    }
    return 1;
}

static int check(const struct settings *what, struct buffers *memory,
                 size_t size, size_t total)
{
    const unsigned char *came = memory->in;
    if (what->on_card) {
        if (ucx_gaudi_mem_copy(memory->image, memory->in, total) != UCS_OK) {
            return failed("cannot read device memory");
        }
        came = memory->image;
    }
    for (size_t i = 0; i < total; ++i) {
        if (came[i] != wanted(what, size, i)) {
            return failed("a wrong byte came");
        }
    }
    return 1;
}

/* --- messages ------------------------------------------------------------- */

static void ping_pong(struct buffers *memory, int size)
{
    if (rank == 0) {
        MPI_Send(memory->out, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(memory->in, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(memory->in, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        MPI_Send(memory->out, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

static void exchange_windows(struct buffers *memory, int size, int window,
                             enum mode mode)
{
    MPI_Request requests[2 * WINDOW];
    MPI_Status statuses[2 * WINDOW];
    int count = 0;
    if ((rank == 1) || (mode == both_ways)) {
        for (int i = 0; i < window; ++i) {
            MPI_Irecv((char *)memory->in + (size_t)i * (size_t)size, size,
                      MPI_BYTE, !rank, 0, MPI_COMM_WORLD, &requests[count++]);
        }
    }
    if ((rank == 0) || (mode == both_ways)) {
        for (int i = 0; i < window; ++i) {
            MPI_Isend((char *)memory->out + (size_t)i * (size_t)size, size,
                      MPI_BYTE, !rank, 0, MPI_COMM_WORLD, &requests[count++]);
        }
    }
    MPI_Waitall(count, requests, statuses);
    if (mode == bandwidth) {
        if (rank == 0) {
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
}

/* Seconds of one round: a message there and back, or a window. */
static double run_round(const struct settings *what, struct buffers *memory,
                        size_t size)
{
    const double start = MPI_Wtime();
    if (what->mode == latency) {
        ping_pong(memory, (int)size);
    } else if (what->mode == allreduce) {
        MPI_Allreduce(memory->out, memory->in, (int)size, MPI_BYTE, MPI_BXOR,
                      MPI_COMM_WORLD);
    } else {
        exchange_windows(memory, (int)size, window_of(what, size), what->mode);
    }
    return MPI_Wtime() - start;
}

static double median_of_rounds(const struct settings *what,
                               struct buffers *memory, double *times,
                               size_t size, int rounds)
{
    for (int i = 0; i < rounds; ++i) {
        times[i] = run_round(what, memory, size);
    }
    qsort(times, (size_t)rounds, sizeof(*times), compare);
    return times[rounds / 2];
}

/* Whether all bytes came. */
static int measure(const struct settings *what, struct buffers *memory,
                   double *times, size_t size)
{
    const int window   = window_of(what, size);
    const size_t total = size * (size_t)window;

    if (!all_good(fill(what, memory, size, total))) {
        return 0;
    }

    /* The first round opens buffers; the others tell how many to measure. */
    run_round(what, memory, size);
    const double expected =
        median_of_rounds(what, memory, times, size, WARM_UP);
    const double wanted = what->seconds / expected;
    int rounds          = (wanted < LEAST_ROUNDS)  ? LEAST_ROUNDS
                          : (wanted > MOST_ROUNDS) ? MOST_ROUNDS
                                                   : (int)wanted;
    MPI_Bcast(&rounds, 1, MPI_INT, 0, MPI_COMM_WORLD);
    const double median = median_of_rounds(what, memory, times, size, rounds);
    const int receives  = (rank == 1) || (what->mode != bandwidth);
    if (!all_good(!receives || check(what, memory, size, total))) {
        return 0;
    }

    if (rank == 0) {
        const double one   = median / ((what->mode == latency) ? 2 : window);
        const double bytes = (double)size * (what->mode == both_ways ? 2 : 1);
        printf("%10zu %12.3f %10.4f\n", size, one * 1e6, bytes / one / 1e9);
        fflush(stdout);
    }
    return 1;
}

/* --- arguments ------------------------------------------------------------ */

/* They are the same in all ranks: the first one tells what is wrong. */
static int refused(const char *why)
{
    return (rank == 0) ? failed(why) : 0;
}

static int read_size(const char *text, size_t *size)
{
    char *end;
    const unsigned long long value = strtoull(text, &end, 10);
    *size                          = (size_t)value;
    return ((end != text) && (*end == '\0') && (text[0] != '-') &&
            (value > 0) && (value <= (1u << 30))) ||
           refused("a size is a number of bytes, from 1 to 1073741824");
}

static int read_seconds(const char *text, double *seconds)
{
    char *end;
    *seconds = strtod(text, &end);
    return ((end != text) && (*end == '\0') && (*seconds > 0) &&
            (*seconds <= 60)) ||
           refused("seconds are more than 0, and at most 60");
}

static int read_arguments(int argc, char **argv, struct settings *what)
{
    static const char *const modes[] = {"latency", "bandwidth", "both-ways",
                                        "allreduce"};

    if ((argc != 4) && (argc != 6) && (argc != 7)) {
        return refused("usage: gaudi_bench_mpi latency|bandwidth|both-ways|"
                       "allreduce D|H D|H [SMALLEST LARGEST [SECONDS]]");
    }
    int mode = 0;
    while ((mode <= allreduce) && (strcmp(argv[1], modes[mode]) != 0)) {
        ++mode;
    }
    if (mode > allreduce) {
        return refused("no such mode: latency, bandwidth, both-ways or "
                       "allreduce");
    }
    what->mode = (enum mode)mode;
    if ((mode != allreduce) && (ranks != 2)) {
        return refused("two ranks are needed, no more: mpiexec -n 2");
    }
    for (int i = 2; i < 4; ++i) {
        if ((strcmp(argv[i], "D") != 0) && (strcmp(argv[i], "H") != 0)) {
            return refused("memory is D, of a device, or H, of the host");
        }
    }
    what->on_card = (argv[(rank == 0) ? 2 : 3][0] == 'D');
    if ((argc > 4) && !(read_size(argv[4], &what->smallest) &&
                        read_size(argv[5], &what->largest))) {
        return 0;
    }
    if (what->smallest > what->largest) {
        return refused("the sizes go from the smallest");
    }
    return (argc <= 6) || read_seconds(argv[6], &what->seconds);
}

static int run(const struct settings *what, char **argv)
{
    struct buffers memory = {0};
    double *times         = malloc(MOST_ROUNDS * sizeof(*times));
    const int allocated =
        (times != NULL) ? allocate(what, &memory) : failed("no memory");
    if (!all_good(allocated)) {
        return 0; /* what is there goes with the process */
    }

    int good = 1;
    if (rank == 0) {
        printf("# %s, memory of rank 0: %s, of others: %s\n", argv[1], argv[2],
               argv[3]);
        printf("# %8s %12s %10s\n", "bytes", "us", "GB/s");
    }
    for (size_t size = what->smallest; good && (size <= what->largest);
         size *= 2) {
        good = measure(what, &memory, times, size);
    }
    release(what, &memory);
    free(times);
    return good;
}

int main(int argc, char **argv)
{
    struct settings what = {.smallest = 1, .largest = 4u << 20, .seconds = 0.2};
    int good;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    good = read_arguments(argc, argv, &what) && run(&what, argv);
    MPI_Finalize();
    return good ? 0 : 1;
}
