/*
 * Point-to-point messages and broadcasts on host and Gaudi memory, by an MPI
 * library that knows nothing of cards. Looks at every byte, and at those around
 * the message; and at what the engines of software cards did meanwhile.
 *
 * usage: mpi_contents gaudi|host      under mpiexec, at least two ranks
 *
 * With "host" it uses host memory alone and asks for no card itself.
 */
#include "gaudi_memory.h"
#include "hlthunk_shim/emu/hlthunk_emu.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARGIN 61 /* around the message; also makes addresses odd */
#define LARGEST ((4u << 20) + 3)
#define CAPACITY (LARGEST + 2 * MARGIN)

static const size_t sizes[] = {0,      1,      7,      64,       1000,
                               4096,   8191,   8192,   16385,    65536,
                               131073, 262144, 524289, 1u << 20, LARGEST};
#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))
#define MAX_FDS 1024
#define LIFE_SECONDS 100

enum kind { host_memory, gaudi_memory, kinds };
static const char *const names[] = {"host", "gaudi"};

/* Memory of one kind. */
struct memory {
    enum kind kind;
    char *message;
    char *host;
    struct gaudi_buffer device;
};

static char *image; /* what memory is written from, and read into */

/* Bytes of messages that this rank received, and that its card moved in MPI
 * calls. By whether one side of the message was Gaudi memory. */
struct traffic {
    uint64_t received;
    uint64_t moved;
};
static struct traffic traffic[kinds];

typedef int (*get_counters_t)(int fd, struct hlthunk_emu_counters *counters);
static get_counters_t get_counters; /* NULL without the emulator */

static void die(const char *what)
{
    fprintf(stderr, "mpi_contents: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

static char pattern(size_t position, unsigned seed)
{
    return (char)(((position * 2654435761u) >> 9) + seed * 37);
}

/* Bytes that the engines of this process's software cards moved so far. */
static uint64_t count_dma(void)
{
    struct hlthunk_emu_counters counters;
    uint64_t sum = 0;
    int fd;

    for (fd = 0; (get_counters != NULL) && (fd < MAX_FDS); ++fd) {
        if (get_counters(fd, &counters) == 0) {
            sum += counters.host_to_device_bytes +
                   counters.device_to_host_bytes +
                   counters.device_to_device_bytes;
        }
    }
    return sum;
}

/* Account for MPI calls. Bytes were received, 0 by a sender. */
static void account(enum kind kind, size_t received, uint64_t dma_before)
{
    traffic[kind].received += received;
    traffic[kind].moved += count_dma() - dma_before;
}

static void expect_count(const MPI_Status *status, size_t size)
{
    int count;

    MPI_Get_count(status, MPI_CHAR, &count);
    if ((size_t)count != size) {
        die("a message has another length");
    }
}

static void allocate(struct memory *memory, enum kind kind)
{
    memory->kind = kind;
    memory->host = malloc(CAPACITY);
    if ((memory->host == NULL) ||
        ((kind == gaudi_memory) && gaudi_alloc(&memory->device, CAPACITY))) {
        die("no memory");
    }
    memory->message = ((kind == gaudi_memory) ? (char *)memory->device.address
                                              : memory->host) +
                      MARGIN;
}

static void release(struct memory *memory)
{
    if (memory->kind == gaudi_memory) {
        gaudi_free(&memory->device);
    }
    free(memory->host);
}

/* Fill everything with one pattern. */
static void fill(struct memory *memory, size_t size, unsigned seed)
{
    const size_t bytes = size + 2 * MARGIN;
    char *to           = (memory->kind == gaudi_memory) ? image : memory->host;
    size_t i;

    for (i = 0; i < bytes; ++i) {
        to[i] = pattern(i, seed);
    }
    if ((memory->kind == gaudi_memory) &&
        gaudi_write(&memory->device, 0, image, bytes)) {
        die("cannot write");
    }
}

/* The message has one pattern, what is around it another. */
static void expect(struct memory *memory, size_t size, unsigned seed,
                   unsigned around, const char *what)
{
    const size_t bytes = size + 2 * MARGIN;
    const char *from   = memory->host;
    size_t i;

    if (memory->kind == gaudi_memory) {
        /* Nothing of what was written is left to be taken for what is read. */
        for (i = 0; i < bytes; ++i) {
            image[i] = (char)~pattern(i, seed);
        }
        if (gaudi_read(&memory->device, 0, image, bytes)) {
            die("cannot read");
        }
        from = image;
    }
    for (i = 0; i < bytes; ++i) {
        const int inside = (i >= MARGIN) && (i < MARGIN + size);
        if (from[i] != pattern(i, inside ? seed : around)) {
            fprintf(stderr, "%s of %zu bytes, %s memory: byte %zd is wrong\n",
                    what, size, names[memory->kind], (ssize_t)(i - MARGIN));
            die("contents differ");
        }
    }
}

/* Rank `from` sends to rank `to`; both look. */
static void send_message(struct memory *source, struct memory *target, int rank,
                         int from, int to, size_t size, int immediate,
                         unsigned seed)
{
    const char *what = immediate ? "MPI_Isend" : "MPI_Send";
    const int count  = (int)size;
    const enum kind kind =
        (source->kind == gaudi_memory) ? gaudi_memory : target->kind;
    MPI_Request request;
    MPI_Status status;
    uint64_t before;

    if (rank == from) {
        fill(source, size, seed);
        before = count_dma();
        if (immediate) {
            MPI_Isend(source->message, count, MPI_CHAR, to, 1, MPI_COMM_WORLD,
                      &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(source->message, count, MPI_CHAR, to, 1, MPI_COMM_WORLD);
        }
        account(kind, 0, before);
        expect(source, size, seed, seed, what);
    } else if (rank == to) {
        fill(target, size, seed + 1);
        before = count_dma();
        if (immediate) {
            MPI_Irecv(target->message, count, MPI_CHAR, from, 1, MPI_COMM_WORLD,
                      &request);
            MPI_Wait(&request, &status);
        } else {
            MPI_Recv(target->message, count, MPI_CHAR, from, 1, MPI_COMM_WORLD,
                     &status);
        }
        account(kind, size, before);
        expect_count(&status, size);
        expect(target, size, seed, seed + 1, what);
    }
}

/* Both ways at a time, between neighbours. */
static void exchange(struct memory *source, struct memory *target, int rank,
                     int ranks, size_t size, unsigned seed)
{
    const int right = (rank + 1) % ranks;
    const int left  = (rank + ranks - 1) % ranks;
    const enum kind kind =
        (source->kind == gaudi_memory) ? gaudi_memory : target->kind;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    uint64_t before;

    fill(source, size, seed + (unsigned)rank);
    fill(target, size, seed + 100);
    before = count_dma();
    MPI_Irecv(target->message, (int)size, MPI_CHAR, left, 2, MPI_COMM_WORLD,
              &requests[0]);
    MPI_Isend(source->message, (int)size, MPI_CHAR, right, 2, MPI_COMM_WORLD,
              &requests[1]);
    MPI_Waitall(2, requests, statuses);
    account(kind, size, before);
    expect_count(&statuses[0], size);
    expect(target, size, seed + (unsigned)left, seed + 100, "an exchange");
}

static void broadcast(struct memory *memory, int rank, int root, size_t size,
                      unsigned seed)
{
    uint64_t before;

    fill(memory, size, (rank == root) ? seed : seed + 1);
    before = count_dma();
    MPI_Bcast(memory->message, (int)size, MPI_CHAR, root, MPI_COMM_WORLD);
    account(memory->kind, (rank == root) ? 0 : size, before);
    expect(memory, size, seed, (rank == root) ? seed : seed + 1, "MPI_Bcast");
}

/* Every kind of message, at every size. */
static void exchange_messages(struct memory *source, struct memory *target,
                              size_t kind_count, int rank, int ranks)
{
    unsigned seed = 0;
    size_t i, from, to;
    int root;

    for (i = 0; i < SIZE_COUNT; ++i) {
        for (from = 0; from < kind_count; ++from) {
            for (to = 0; to < kind_count; ++to) {
                send_message(&source[from], &target[to], rank, 0, ranks - 1,
                             sizes[i], 0, seed += 10);
                send_message(&source[from], &target[to], rank, ranks - 1, 0,
                             sizes[i], 1, seed += 10);
                exchange(&source[from], &target[to], rank, ranks, sizes[i],
                         seed += 10);
            }
        }
        for (root = 0; root < ranks; ++root) {
            for (to = 0; to < kind_count; ++to) {
                broadcast(&target[to], rank, root, sizes[i], seed += 10);
            }
        }
    }
}

/* Engines have moved what is in device memory, and nothing else. */
static void report(int rank, int ranks)
{
    struct traffic total[kinds];
    int counted = (get_counters != NULL);
    int all_counted;

    MPI_Reduce(traffic, total, 2 * kinds, MPI_UINT64_T, MPI_SUM, 0,
               MPI_COMM_WORLD);
    MPI_Reduce(&counted, &all_counted, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    if (rank != 0) {
        return;
    }
    if (all_counted) {
        if (total[gaudi_memory].moved < total[gaudi_memory].received) {
            die("the cards did not move what was sent");
        }
        if (total[host_memory].moved != 0) {
            die("cards moved host messages");
        }
        printf("cards moved %s\n", (total[gaudi_memory].received > 0)
                                       ? "all device messages"
                                       : "nothing");
    }
    printf("all %d ranks have what was sent\n", ranks);
}

int main(int argc, char **argv)
{
    struct memory source[kinds], target[kinds];
    int rank, ranks, with_cards;
    size_t i, kind_count;
    void *emulator;

    if ((argc != 2) || (strcmp(argv[1], "gaudi") && strcmp(argv[1], "host"))) {
        fprintf(stderr, "usage: mpi_contents gaudi|host\n");
        return 2;
    }
    with_cards = !strcmp(argv[1], "gaudi");
    kind_count = with_cards ? kinds : 1;

    alarm(LIFE_SECONDS);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    image = malloc(CAPACITY);
    if ((ranks < 2) || (image == NULL) || (with_cards && gaudi_open())) {
        die("cannot start");
    }
    emulator = dlopen("libhl-thunk.so", RTLD_NOW | RTLD_NOLOAD);
    if (emulator != NULL) {
        get_counters =
            (get_counters_t)dlsym(emulator, "hlthunk_emu_get_counters");
    }
    for (i = 0; i < kind_count; ++i) {
        allocate(&source[i], (enum kind)i);
        allocate(&target[i], (enum kind)i);
    }

    exchange_messages(source, target, kind_count, rank, ranks);

    for (i = 0; i < kind_count; ++i) {
        release(&source[i]);
        release(&target[i]);
    }
    free(image);
    if (with_cards) {
        gaudi_close();
    }
    report(rank, ranks);
    if (emulator != NULL) {
        dlclose(emulator);
    }
    MPI_Finalize();
    return 0;
}
