/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Point-to-point messages and broadcasts on host and Gaudi memory, by an MPI
 * library that knows nothing of cards. Looks at every byte, and at those around
 * the message; and at what the engines of software cards did meanwhile.
 *
 * usage: mpi_contents gaudi|host      under mpiexec, at least two ranks
 *
 * With "host" it uses host memory alone and asks for no card itself.
 */
#include "mpi_memory.h"

#include <limits.h>
#include <mpi.h>

#define LARGEST ((4u << 20) + 3)

static const size_t sizes[] = {0,      1,      7,      64,       1000,
                               4096,   8191,   8192,   16385,    65536,
                               131073, 262144, 524289, 1u << 20, LARGEST};
#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))

static void expect_count(const MPI_Status *status, size_t size)
{
    int count;

    MPI_Get_count(status, MPI_CHAR, &count);
    if ((size_t)count != size) {
        die("a message has another length");
    }
}

/* Fill everything with one pattern. */
static void fill_message(struct memory *memory, size_t size, unsigned seed)
{
    fill(memory, 1, size, &seed, seed);
}

static enum kind kind_of(struct memory *source, struct memory *target)
{
    return (source->kind == gaudi_memory) ? gaudi_memory : target->kind;
}

/* Rank `from` sends to rank `to`; both look. */
static void send_message(struct memory *source, struct memory *target, int from,
                         int to, size_t size, int immediate, unsigned seed)
{
    const char *what = immediate ? "MPI_Isend" : "MPI_Send";
    const int count  = (int)size;
    MPI_Request request;
    MPI_Status status;
    uint64_t before;

    if (rank == from) {
        fill_message(source, size, seed);
        before = count_dma();
        if (immediate) {
            MPI_Isend(source->blocks, count, MPI_CHAR, to, 1, MPI_COMM_WORLD,
                      &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(source->blocks, count, MPI_CHAR, to, 1, MPI_COMM_WORLD);
        }
        account(kind_of(source, target), 0, before);
        expect(source, 1, size, &seed, seed, what);
    } else if (rank == to) {
        fill_message(target, size, seed + 1);
        before = count_dma();
        if (immediate) {
            MPI_Irecv(target->blocks, count, MPI_CHAR, from, 1, MPI_COMM_WORLD,
                      &request);
            MPI_Wait(&request, &status);
        } else {
            MPI_Recv(target->blocks, count, MPI_CHAR, from, 1, MPI_COMM_WORLD,
                     &status);
        }
        account(kind_of(source, target), size, before);
        expect_count(&status, size);
        expect(target, 1, size, &seed, seed + 1, what);
    }
}

/* Both ways at a time, between neighbours. */
static void exchange(struct memory *source, struct memory *target, size_t size,
                     unsigned seed)
{
    const unsigned sent = seed + (unsigned)left;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    uint64_t before;

    fill_message(source, size, seed + (unsigned)rank);
    fill_message(target, size, seed + 100);
    before = count_dma();
    MPI_Irecv(target->blocks, (int)size, MPI_CHAR, left, 2, MPI_COMM_WORLD,
              &requests[0]);
    MPI_Isend(source->blocks, (int)size, MPI_CHAR, right, 2, MPI_COMM_WORLD,
              &requests[1]);
    MPI_Waitall(2, requests, statuses);
    account(kind_of(source, target), size, before);
    expect_count(&statuses[0], size);
    expect(target, 1, size, &sent, seed + 100, "an exchange");
}

static void broadcast(struct memory *memory, int root, size_t size,
                      unsigned seed)
{
    const unsigned around = (rank == root) ? seed : seed + 1;
    uint64_t before;

    fill_message(memory, size, around);
    before = count_dma();
    MPI_Bcast(memory->blocks, (int)size, MPI_CHAR, root, MPI_COMM_WORLD);
    account(memory->kind, (rank == root) ? 0 : size, before);
    expect(memory, 1, size, &seed, around, "MPI_Bcast");
}

/* Every kind of message, at every size. */
static void exchange_messages(struct memory *source, struct memory *target,
                              size_t kind_count)
{
    unsigned seed = 0;
    size_t i, from, to;
    int root;

    for (i = 0; i < SIZE_COUNT; ++i) {
        for (from = 0; from < kind_count; ++from) {
            for (to = 0; to < kind_count; ++to) {
                send_message(&source[from], &target[to], 0, ranks - 1, sizes[i],
                             0, seed += 10);
                send_message(&source[from], &target[to], ranks - 1, 0, sizes[i],
                             1, seed += 10);
                exchange(&source[from], &target[to], sizes[i], seed += 10);
            }
        }
        for (root = 0; root < ranks; root += ranks - 1) {
            for (to = 0; to < kind_count; ++to) {
                broadcast(&target[to], root, sizes[i], seed += 10);
            }
        }
    }
}

int main(int argc, char **argv)
{
    struct memory source[kinds], target[kinds];
    size_t i, kind_count;

    kind_count =
        (start_program(argc, argv, 1, INT_MAX) == gaudi_memory) ? kinds : 1;
    start_memory(LARGEST, kind_count == kinds);
    for (i = 0; i < kind_count; ++i) {
        allocate(&source[i], (enum kind)i);
        allocate(&target[i], (enum kind)i);
    }

    exchange_messages(source, target, kind_count);

    for (i = 0; i < kind_count; ++i) {
        release(&source[i]);
        release(&target[i]);
    }
    end_program();
    return 0;
}
