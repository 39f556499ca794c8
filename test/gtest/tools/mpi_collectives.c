/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective, non-blocking and one-sided operations on host or Gaudi memory, by
 * an MPI library that knows nothing of cards. Looks at every byte, and at what
 * the engines of software cards did meanwhile.
 *
 * usage: mpi_collectives gaudi|host FOLDER OPERATION...    under mpiexec
 *
 * Where the library touches Gaudi memory with the CPU, the rank that does so
 * makes a file FOLDER/touched.RANK, and exits.
 */
#include "mpi_memory.h"

#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RANKS 16
#define LARGEST 300001
#define EXIT_TOUCHED 86

static const size_t sizes[] = {1, 8, 3001, LARGEST};
#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))

enum { of_source = 201, of_target = 202 }; /* seeds around blocks */

static char touched[4096]; /* a path */

/* An operation under way: a block of memory for each rank. */
struct call {
    const char *name;
    int size; /* of a block */
    struct memory *source, *target;
    char *from, *to;              /* their first blocks */
    unsigned sent[MAX_RANKS];     /* patterns in the source */
    unsigned initial[MAX_RANKS];  /* in the target, before */
    unsigned expected[MAX_RANKS]; /* and after */
    int counts[MAX_RANKS];        /* bytes for and of each rank: one block */
    int offsets[MAX_RANKS];
    int how;         /* a variant of the operation */
    uint64_t before; /* bytes moved by cards */
};

/* The pattern of a block that one rank has for another. */
static unsigned seed_of(int of, int to)
{
    return (unsigned)(1 + of * MAX_RANKS + to);
}

static char *block(char *first, const struct call *call, int index)
{
    return first + (size_t)index * (size_t)call->size;
}

static void begin(struct call *call)
{
    fill(call->source, (size_t)ranks, (size_t)call->size, call->sent,
         of_source);
    fill(call->target, (size_t)ranks, (size_t)call->size, call->initial,
         of_target);
    MPI_Barrier(MPI_COMM_WORLD);
    call->before = count_dma();
}

/* Blocks were received. */
static void end(struct call *call, int received)
{
    account(call->target->kind, (size_t)received * (size_t)call->size,
            call->before);
    expect(call->source, (size_t)ranks, (size_t)call->size, call->sent,
           of_source, call->name);
    expect(call->target, (size_t)ranks, (size_t)call->size, call->expected,
           of_target, call->name);
}

/* Until a request is done, with other calls meanwhile. */
static void complete(MPI_Request request)
{
    int done = 0;

    while (!done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
}

static void expect_of_each(struct call *call, int for_me)
{
    int i;

    for (i = 0; i < ranks; ++i) {
        call->expected[i] = seed_of(i, for_me ? rank : 0);
    }
}

/* Variants, of which some have their own block where it is to be, and some let
 * it be. */
enum { plainly, in_place, others, at_once = 0x10, largest = 0x20 };

/* --- Allgather ------------------------------------------------------------ */

static void allgather(struct call *call)
{
    MPI_Request request;

    expect_of_each(call, 0);
    if (call->how == plainly) {
        begin(call);
        MPI_Allgather(call->from, call->size, MPI_CHAR, call->to, call->size,
                      MPI_CHAR, MPI_COMM_WORLD);
        end(call, ranks - 1);
        return;
    }
    call->initial[rank] = call->expected[rank];
    begin(call);
    if (call->how & at_once) {
        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, call->to, call->size,
                       MPI_CHAR, MPI_COMM_WORLD, &request);
        complete(request);
    } else {
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, call->to, call->size,
                      MPI_CHAR, MPI_COMM_WORLD);
    }
    end(call, ranks - 1);
}

static void allgatherv_in_place(struct call *call)
{
    MPI_Request request;

    expect_of_each(call, 0);
    call->initial[rank] = call->expected[rank];
    begin(call);
    if (call->how & at_once) {
        MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, call->to,
                        call->counts, call->offsets, MPI_CHAR, MPI_COMM_WORLD,
                        &request);
        complete(request);
    } else {
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, call->to,
                       call->counts, call->offsets, MPI_CHAR, MPI_COMM_WORLD);
    }
    end(call, ranks - 1);
}

/* --- Alltoall ------------------------------------------------------------- */

static void alltoall(struct call *call)
{
    expect_of_each(call, 1);
    if (call->how == in_place) {
        memcpy(call->initial, call->sent, sizeof(call->initial));
    }
    begin(call);
    MPI_Alltoall((call->how == in_place) ? MPI_IN_PLACE : call->from,
                 call->size, MPI_CHAR, call->to, call->size, MPI_CHAR,
                 MPI_COMM_WORLD);
    end(call, ranks - 1);
}

static void alltoallv(struct call *call)
{
    MPI_Request request;

    expect_of_each(call, 1);
    if (call->how & others) {
        call->expected[rank] = call->initial[rank];
        call->counts[rank]   = 0;
    }
    begin(call);
    if (call->how & at_once) {
        MPI_Ialltoallv(call->from, call->counts, call->offsets, MPI_CHAR,
                       call->to, call->counts, call->offsets, MPI_CHAR,
                       MPI_COMM_WORLD, &request);
        complete(request);
    } else {
        MPI_Alltoallv(call->from, call->counts, call->offsets, MPI_CHAR,
                      call->to, call->counts, call->offsets, MPI_CHAR,
                      MPI_COMM_WORLD);
    }
    end(call, ranks - 1);
}

/* --- all others as neighbours --------------------------------------------- */

/* Who the others are is written to an array. */
static MPI_Comm make_graph(struct call *call, int others[MAX_RANKS])
{
    const int weights[MAX_RANKS] = {0};
    MPI_Comm graph;
    int i, count = 0;

    for (i = 0; i < ranks; ++i) {
        if (i != rank) {
            others[count++] = i;
        }
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, count, others, weights,
                                   count, others, weights, MPI_INFO_NULL, 0,
                                   &graph);
    begin(call);
    return graph;
}

static void neighbor_allgather(struct call *call)
{
    int others[MAX_RANKS], i;
    MPI_Comm graph = make_graph(call, others);

    MPI_Neighbor_allgather(call->from, call->size, MPI_CHAR, call->to,
                           call->size, MPI_CHAR, graph);
    for (i = 0; i < ranks - 1; ++i) {
        call->expected[i] = seed_of(others[i], 0);
    }
    end(call, ranks - 1);
    MPI_Comm_free(&graph);
}

static void neighbor_alltoall(struct call *call)
{
    int others[MAX_RANKS], i;
    MPI_Comm graph = make_graph(call, others);

    MPI_Neighbor_alltoall(call->from, call->size, MPI_CHAR, call->to,
                          call->size, MPI_CHAR, graph);
    for (i = 0; i < ranks - 1; ++i) {
        /* Which of its neighbours this rank is. */
        call->expected[i] =
            seed_of(others[i], (rank < others[i]) ? rank : rank - 1);
    }
    end(call, ranks - 1);
    MPI_Comm_free(&graph);
}

/* --- Bcast, Allreduce ----------------------------------------------------- */

/* From the last rank; the first block of the target. */
static void bcast(struct call *call)
{
    const int root = ranks - 1;
    MPI_Request request;

    call->expected[0] = seed_of(root, 0);
    if (rank == root) {
        call->initial[0] = call->expected[0];
    }
    begin(call);
    if (call->how == at_once) {
        MPI_Ibcast(call->to, call->size, MPI_CHAR, root, MPI_COMM_WORLD,
                   &request);
        complete(request);
    } else {
        MPI_Bcast(call->to, call->size, MPI_CHAR, root, MPI_COMM_WORLD);
    }
    end(call, rank != root);
}

/* Of the same block of all ranks, which is the greatest of them. */
static void allreduce(struct call *call)
{
    call->sent[0]     = seed_of(0, 0);
    call->expected[0] = call->sent[0];
    begin(call);
    MPI_Allreduce(call->from, call->to, call->size, MPI_CHAR, MPI_MAX,
                  MPI_COMM_WORLD);
    end(call, 1);
}

/* --- one-sided ------------------------------------------------------------ */

enum { by_fence, by_lock, by_post, to_itself };

static void open_epoch(int how, MPI_Win window, int target, int origin)
{
    MPI_Group world, targets, origins;

    if (how == by_fence) {
        MPI_Win_fence(0, window);
    } else if (how == by_lock) {
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window);
    } else {
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_incl(world, 1, &target, &targets);
        MPI_Group_incl(world, 1, &origin, &origins);
        MPI_Win_post(origins, 0, window);
        MPI_Win_start(targets, 0, window);
        MPI_Group_free(&origins);
        MPI_Group_free(&targets);
        MPI_Group_free(&world);
    }
}

static void close_epoch(int how, MPI_Win window, int target)
{
    if (how == by_fence) {
        MPI_Win_fence(0, window);
    } else if (how == by_lock) {
        MPI_Win_unlock(target, window);
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        MPI_Win_complete(window);
        MPI_Win_wait(window);
    }
}

/* With the margins: of another base, MPICH 4.0 takes the multiple of 16 below,
 * on host memory and without the module, too. */
static MPI_Win make_window(struct call *call, char *base)
{
    MPI_Win window;

    MPI_Win_create(base - MARGIN, (MPI_Aint)ranks * call->size + 2 * MARGIN, 1,
                   MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    begin(call);
    return window;
}

/* Where a block is in a window. */
static MPI_Aint place_of(const struct call *call, int index)
{
    return MARGIN + (MPI_Aint)index * call->size;
}

/* The first block here to the block of this rank there. */
static void put(struct call *call)
{
    const int how    = (call->how == to_itself) ? by_fence : call->how;
    const int target = (call->how == to_itself) ? rank : right;
    const int origin = (call->how == to_itself) ? rank : left;
    MPI_Win window   = make_window(call, call->to);

    open_epoch(how, window, target, origin);
    MPI_Put(call->from, call->size, MPI_CHAR, target, place_of(call, rank),
            call->size, MPI_CHAR, window);
    close_epoch(how, window, target);
    call->expected[origin] = seed_of(origin, 0);
    end(call, 1);
    MPI_Win_free(&window);
}

/* The block of this rank there to the block of that rank here. */
static void get(struct call *call)
{
    MPI_Win window = make_window(call, call->from);

    open_epoch(call->how, window, right, left);
    MPI_Get(block(call->to, call, right), call->size, MPI_CHAR, right,
            place_of(call, rank), call->size, MPI_CHAR, window);
    close_epoch(call->how, window, right);
    call->expected[right] = seed_of(right, rank);
    end(call, 1);
    MPI_Win_free(&window);
}

/* As put, to memory attached later: one byte more than is used, since Open MPI
 * 4.1 crashes at a put to the last byte. */
static void put_dynamic(struct call *call)
{
    MPI_Win window;
    MPI_Aint here, there;

    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_attach(window, call->to, (MPI_Aint)ranks * call->size + 1);
    MPI_Get_address(block(call->to, call, left), &here);
    MPI_Sendrecv(&here, 1, MPI_AINT, left, 0, &there, 1, MPI_AINT, right, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    begin(call);
    MPI_Win_fence(0, window);
    MPI_Put(call->from, call->size, MPI_CHAR, right, there, call->size,
            MPI_CHAR, window);
    MPI_Win_fence(0, window);
    call->expected[left] = seed_of(left, 0);
    end(call, 1);
    MPI_Win_detach(window, call->to);
    MPI_Win_free(&window);
}

#if (MPI_VERSION >= 4) ||                                                      \
    (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_PARTITIONS
/* All blocks of the target are one message, in as many parts. */
static void psend(struct call *call)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int i;

    MPI_Psend_init(call->from, ranks, call->size, MPI_CHAR, right, 0,
                   MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(call->to, ranks, call->size, MPI_CHAR, left, 0,
                   MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    begin(call);
    MPI_Startall(2, requests);
    for (i = ranks - 1; i >= 0; --i) {
        MPI_Pready(i, requests[0]);
        call->expected[i] = seed_of(left, i);
    }
    MPI_Waitall(2, requests, statuses);
    end(call, ranks);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}
#endif

/* Of equal bytes, which are the greatest of them. */
static void accumulate(struct call *call)
{
    MPI_Win window;

    call->sent[0] = call->initial[rank] = call->expected[rank] = seed_of(0, 0);
    window = make_window(call, call->to);
    MPI_Win_fence(0, window);
    MPI_Accumulate(call->from, call->size, MPI_CHAR, right,
                   place_of(call, right), call->size, MPI_CHAR, MPI_MAX,
                   window);
    MPI_Win_fence(0, window);
    end(call, 1);
    MPI_Win_free(&window);
}

/* -------------------------------------------------------------------------- */

static const struct operation {
    const char *name;
    void (*run)(struct call *);
    int how;
} operations[] = {
    {"allgather", allgather, plainly},
    {"allgather_in_place", allgather, in_place},
    {"iallgather_in_place", allgather, in_place | at_once},
    {"allgatherv_in_place", allgatherv_in_place, plainly},
    {"allgatherv_largest", allgatherv_in_place, largest},
    {"iallgatherv_in_place", allgatherv_in_place, at_once},
    {"iallgatherv_largest", allgatherv_in_place, at_once | largest},
    {"alltoall", alltoall, plainly},
    {"alltoall_in_place", alltoall, in_place},
    {"alltoallv", alltoallv, plainly},
    {"alltoallv_others", alltoallv, others},
    {"ialltoallv_others", alltoallv, others | at_once},
    {"neighbor_allgather", neighbor_allgather, plainly},
    {"neighbor_alltoall", neighbor_alltoall, plainly},
    {"bcast", bcast, plainly},
    {"ibcast", bcast, at_once},
    {"allreduce", allreduce, plainly},
    {"put_fence", put, by_fence},
    {"put_lock", put, by_lock},
    {"put_post", put, by_post},
    {"put_own", put, to_itself},
    {"put_dynamic", put_dynamic, by_fence},
    {"get_fence", get, by_fence},
    {"get_lock", get, by_lock},
    {"get_post", get, by_post},
#ifdef HAS_PARTITIONS
    {"psend", psend, plainly},
#endif
    {"accumulate", accumulate, by_fence}};
#define OPERATION_COUNT (sizeof(operations) / sizeof(operations[0]))

static void run(const struct operation *operation, struct memory *source,
                struct memory *target, size_t size)
{
    struct call call = {.name   = operation->name,
                        .size   = (int)size,
                        .how    = operation->how,
                        .source = source,
                        .target = target,
                        .from   = source->blocks,
                        .to     = target->blocks};
    int i;

    for (i = 0; i < ranks; ++i) {
        call.sent[i]    = seed_of(rank, i);
        call.initial[i] = call.expected[i] = of_target;
        call.counts[i]                     = call.size;
        call.offsets[i]                    = i * call.size;
    }
    operation->run(&call);
}

static void run_named(const char *name, struct memory *source,
                      struct memory *target)
{
    size_t i, size;

    for (i = 0; i < OPERATION_COUNT; ++i) {
        if (!strcmp(operations[i].name, name)) {
            size = (operations[i].how & largest) ? SIZE_COUNT - 1 : 0;
            for (; size < SIZE_COUNT; ++size) {
                run(&operations[i], source, target, sizes[size]);
            }
            return;
        }
    }
    die("there is no such operation");
}

/* An address of a card is none that a CPU can form: what it raises is no page
 * fault. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    if (info->si_code == SI_KERNEL) {
        close(open(touched, O_CREAT | O_WRONLY, 0600));
        _exit(EXIT_TOUCHED);
    }
    abort();
}

int main(int argc, char **argv)
{
    const struct sigaction action = {.sa_sigaction = on_fault,
                                     .sa_flags     = SA_SIGINFO};
    struct memory source, target;
    enum kind kind;
    int i;

    kind = start_program(argc, argv, 3, MAX_RANKS);
    snprintf(touched, sizeof(touched), "%s/touched.%d", argv[2], rank);
    start_memory((size_t)ranks * LARGEST, kind == gaudi_memory);
    allocate(&source, kind);
    allocate(&target, kind);
    sigaction(SIGSEGV, &action, NULL);

    for (i = 3; i < argc; ++i) {
        run_named(argv[i], &source, &target);
    }

    release(&source);
    release(&target);
    end_program();
    return 0;
}
