/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What programs that test MPI libraries share: memory of both kinds with every
 * byte of it looked at, and what the engines of software cards did meanwhile.
 *
 * One thread at a time. What cannot be done, or is not as it should be, ends
 * the job.
 */
#ifndef MPI_MEMORY_H
#define MPI_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define MARGIN 61 /* bytes around blocks; also makes addresses odd */

enum kind { host_memory, gaudi_memory, kinds };

/* Memory of one kind. */
struct memory {
    enum kind kind;
    char *blocks; /* starts here, between margins */
    char *host;
    void *device; /* its address, of device memory */
};

/* Say on stderr what is wrong, and end the job. */
void die(const char *what);

/* The number of this rank, of all, and of its neighbours. Not for libraries,
 * which see what the programs export. */
#define HIDDEN __attribute__((visibility("hidden")))
extern HIDDEN int rank, ranks, left, right;

/* Start MPI. Gives the kind of memory that the first argument of the program
 * names. Ends the program unless there are so many arguments at least, and the
 * job unless there are ranks in this range. */
enum kind start_program(int argc, char **argv, int arguments, int most_ranks);

/* Memory has up to capacity bytes. With cards, open one. */
void start_memory(size_t capacity, int with_cards);

/* When all memory is released: report, and end MPI. */
void end_program(void);

void allocate(struct memory *memory, enum kind kind);
void release(struct memory *memory);

/* Give each of count blocks of size bytes a pattern of its own, and what is
 * around them another one. */
void fill(struct memory *memory, size_t count, size_t size,
          const unsigned *seeds, unsigned around);

/* The same, to be found there. */
void expect(struct memory *memory, size_t count, size_t size,
            const unsigned *seeds, unsigned around, const char *what);

/* Bytes that the engines of this process's software cards moved so far. */
uint64_t count_dma(void);

/* Account for MPI calls between memory that is Gaudi memory on one side at
 * least, or host memory. Bytes were received, 0 by a sender. */
void account(enum kind kind, size_t received, uint64_t dma_before);

#endif
