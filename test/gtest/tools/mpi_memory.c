/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpi_memory.h"

#include "hlthunk_emulator/hlthunk_emu.h"

#include <dlfcn.h>
#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucx_gaudi.h>

#define MAX_FDS 1024
#define LIFE_SECONDS 100

int rank, ranks, left, right;

static const char *const names[] = {"host", "gaudi"};

static size_t capacity; /* with margins */
static int has_card;
static char *image;  /* what device memory is written from, and read into */
static char *wanted; /* what memory is to be */

/* Bytes that this rank received, and that its card moved in MPI calls. */
struct traffic {
    uint64_t received;
    uint64_t moved;
};
static struct traffic traffic[kinds];

typedef int (*get_counters_t)(int fd, struct hlthunk_emu_counters *counters);
static get_counters_t get_counters; /* NULL without the emulator */
static void *emulator;

/* The libraries ask UCX for progress all the time. On fewer processors than
 * ranks each of them keeps the one that it waits for from running. */
unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*progress)(void *worker);
    unsigned count;

    if (progress == NULL) {
        void *ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);

        progress = (unsigned (*)(void *))dlsym(ucp, "ucp_worker_progress");
    }
    count = progress(worker);
    if (count == 0) {
        sched_yield();
    }
    return count;
}

void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

enum kind start_program(int argc, char **argv, int arguments, int most_ranks)
{
    if ((argc <= arguments) ||
        (strcmp(argv[1], "gaudi") && strcmp(argv[1], "host"))) {
        fprintf(stderr, "usage: %s gaudi|host ..., see its source\n",
                program_invocation_short_name);
        exit(2);
    }
    alarm(LIFE_SECONDS);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if ((ranks < 2) || (ranks > most_ranks)) {
        die("cannot run with so many ranks");
    }
    right = (rank + 1) % ranks;
    left  = (rank + ranks - 1) % ranks;
    return strcmp(argv[1], "gaudi") ? host_memory : gaudi_memory;
}

void start_memory(size_t bytes, int with_cards)
{
    capacity = bytes + 2 * MARGIN;
    has_card = with_cards;
    image    = malloc(capacity);
    wanted   = malloc(capacity);
    if ((image == NULL) || (wanted == NULL) ||
        (with_cards && (ucx_gaudi_open(NULL) != UCS_OK))) {
        die("cannot start");
    }
    emulator = dlopen("libhl-thunk.so", RTLD_NOW | RTLD_NOLOAD);
    if (emulator != NULL) {
        get_counters =
            (get_counters_t)dlsym(emulator, "hlthunk_emu_get_counters");
    }
    if (get_counters == NULL) { /* above the double of the kernel driver */
        get_counters =
            (get_counters_t)dlsym(RTLD_DEFAULT, "hlthunk_emu_get_counters");
    }
}

static char pattern(size_t position, unsigned seed)
{
    return (char)(((position * 2654435761u) >> 9) + seed * 37);
}

/* Write blocks with their patterns, and margins; return how many bytes. */
static size_t write_patterns(char *to, size_t count, size_t size,
                             const unsigned *seeds, unsigned around)
{
    const size_t behind = MARGIN + count * size;
    size_t block, i;

    if (behind + MARGIN > capacity) {
        die("more than there is room for");
    }
    for (i = 0; i < MARGIN; ++i) {
        to[i]          = pattern(i, around);
        to[behind + i] = pattern(behind + i, around);
    }
    for (block = 0; block < count; ++block) {
        for (i = 0; i < size; ++i) {
            to[MARGIN + block * size + i] = pattern(i, seeds[block]);
        }
    }
    return behind + MARGIN;
}

void allocate(struct memory *memory, enum kind kind)
{
    memory->kind = kind;
    memory->host = malloc(capacity);
    if ((memory->host == NULL) ||
        ((kind == gaudi_memory) &&
         (ucx_gaudi_mem_alloc(capacity, NULL, &memory->device) != UCS_OK))) {
        die("no memory");
    }
    memory->blocks =
        ((kind == gaudi_memory) ? (char *)memory->device : memory->host) +
        MARGIN;
}

void release(struct memory *memory)
{
    if ((memory->kind == gaudi_memory) &&
        (ucx_gaudi_mem_free(memory->device) != UCS_OK)) {
        die("cannot free");
    }
    free(memory->host);
}

void fill(struct memory *memory, size_t count, size_t size,
          const unsigned *seeds, unsigned around)
{
    char *to           = (memory->kind == gaudi_memory) ? image : memory->host;
    const size_t bytes = write_patterns(to, count, size, seeds, around);

    if ((memory->kind == gaudi_memory) &&
        (ucx_gaudi_mem_copy(memory->device, image, bytes) != UCS_OK)) {
        die("cannot write");
    }
}

void expect(struct memory *memory, size_t count, size_t size,
            const unsigned *seeds, unsigned around, const char *what)
{
    const size_t bytes = write_patterns(wanted, count, size, seeds, around);
    const char *from   = memory->host;
    size_t i;

    if (memory->kind == gaudi_memory) {
        /* Nothing of what was written is left to be taken for what is read. */
        for (i = 0; i < bytes; ++i) {
            image[i] = (char)~wanted[i];
        }
        if (ucx_gaudi_mem_copy(image, memory->device, bytes) != UCS_OK) {
            die("cannot read");
        }
        from = image;
    }
    for (i = 0; i < bytes; ++i) {
        if (from[i] != wanted[i]) {
            fprintf(stderr,
                    "%s, %zu times %zu bytes, %s memory: byte %zd is wrong\n",
                    what, count, size, names[memory->kind],
                    (ssize_t)i - MARGIN);
            die("contents differ");
        }
    }
}

uint64_t count_dma(void)
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

void account(enum kind kind, size_t received, uint64_t dma_before)
{
    traffic[kind].received += received;
    traffic[kind].moved += count_dma() - dma_before;
}

/* Of all ranks, printed by the first one: engines have moved what is in device
 * memory, and nothing else. */
static void report(void)
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

void end_program(void)
{
    free(image);
    free(wanted);
    if (has_card && (ucx_gaudi_close() != UCS_OK)) {
        die("memory is left");
    }
    if (emulator != NULL) {
        dlclose(emulator);
    }
    report();
    MPI_Finalize();
}
