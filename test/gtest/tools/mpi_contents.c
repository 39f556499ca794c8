/*
 * Point-to-point messages and broadcasts on host and Gaudi memory, by an MPI
 * library that knows nothing of cards. Looks at every byte, and at those around
 * the message.
 *
 * usage: mpi_contents      under mpiexec, at least two ranks
 */
#include "gaudi_memory.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARGIN 61 /* around the message; also makes addresses odd */
#define LARGEST (3u << 20)
#define CAPACITY (LARGEST + 2 * MARGIN)

static const size_t sizes[] = {0,      1,      7,      64,       1000,
                               4096,   8191,   8192,   16385,    65536,
                               131073, 262144, 524289, 1u << 20, LARGEST};
#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))

enum kind { host_memory, gaudi_memory };
static const char *const names[] = {"host", "gaudi"};

/* Memory of one kind. */
struct memory {
    enum kind kind;
    char *message;
    char *host;
    struct gaudi_buffer device;
};

static char *image; /* what memory is written from, and read into */

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
    MPI_Request request;

    if (rank == from) {
        fill(source, size, seed);
        if (immediate) {
            MPI_Isend(source->message, count, MPI_CHAR, to, 1, MPI_COMM_WORLD,
                      &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(source->message, count, MPI_CHAR, to, 1, MPI_COMM_WORLD);
        }
        expect(source, size, seed, seed, what);
    } else if (rank == to) {
        fill(target, size, seed + 1);
        if (immediate) {
            MPI_Irecv(target->message, count, MPI_CHAR, from, 1, MPI_COMM_WORLD,
                      &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(target->message, count, MPI_CHAR, from, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
        expect(target, size, seed, seed + 1, what);
    }
}

/* Both ways at a time, between neighbours. */
static void exchange(struct memory *source, struct memory *target, int rank,
                     int ranks, size_t size, unsigned seed)
{
    const int right = (rank + 1) % ranks;
    const int left  = (rank + ranks - 1) % ranks;
    MPI_Request requests[2];
    MPI_Status states[2];

    fill(source, size, seed + (unsigned)rank);
    fill(target, size, seed + 100);
    MPI_Irecv(target->message, (int)size, MPI_CHAR, left, 2, MPI_COMM_WORLD,
              &requests[0]);
    MPI_Isend(source->message, (int)size, MPI_CHAR, right, 2, MPI_COMM_WORLD,
              &requests[1]);
    MPI_Waitall(2, requests, states);
    expect(target, size, seed + (unsigned)left, seed + 100, "an exchange");
}

static void broadcast(struct memory *memory, int rank, int root, size_t size,
                      unsigned seed)
{
    fill(memory, size, (rank == root) ? seed : seed + 1);
    MPI_Bcast(memory->message, (int)size, MPI_CHAR, root, MPI_COMM_WORLD);
    expect(memory, size, seed, (rank == root) ? seed : seed + 1, "MPI_Bcast");
}

int main(int argc, char **argv)
{
    struct memory source[2], target[2];
    unsigned seed = 0;
    int rank, ranks, root;
    size_t i, from, to;

    alarm(120);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    image = malloc(CAPACITY);
    if ((image == NULL) || gaudi_open()) {
        die("cannot start");
    }
    for (i = 0; i < 2; ++i) {
        allocate(&source[i], (enum kind)i);
        allocate(&target[i], (enum kind)i);
    }

    for (i = 0; i < SIZE_COUNT; ++i) {
        for (from = 0; from < 2; ++from) {
            for (to = 0; to < 2; ++to) {
                send_message(&source[from], &target[to], rank, 0, ranks - 1,
                             sizes[i], 0, seed += 10);
                send_message(&source[from], &target[to], rank, ranks - 1, 0,
                             sizes[i], 1, seed += 10);
                exchange(&source[from], &target[to], rank, ranks, sizes[i],
                         seed += 10);
            }
        }
        for (root = 0; root < ranks; root += ranks - 1) {
            for (to = 0; to < 2; ++to) {
                broadcast(&target[to], rank, root, sizes[i], seed += 10);
            }
        }
    }

    for (i = 0; i < 2; ++i) {
        release(&source[i]);
        release(&target[i]);
    }
    free(image);
    gaudi_close();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("all %d ranks have what was sent\n", ranks);
    }
    MPI_Finalize();
    return 0;
}
