/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of an MPI library on Gaudi memory: what they leave there is, byte
 * by byte, what they leave in host memory, in source and target; and what the
 * engines of software cards did meanwhile.
 *
 * usage: mpi_operations FROM TO FOLDER NAME...    under mpiexec
 *
 * FROM and TO are gaudi or host: memory of the two sides. NAMEs are operations
 * or groups of them (see below); each runs with several types and sizes. With
 * host and host it shows that the program itself is right, and that cards stay
 * idle; it then asks for none.
 */
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

#define MAX_RANKS 8
#define MAX_FDS 1024
#define LIFE_SECONDS 100

/* Elements of a block. */
static const int counts[] = {1, 1000};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* One more size, of doubles alone: reductions of more than our component
 * computes at a time, and messages that UCX sends by rendezvous. */
#define LARGEST 140001
#define LARGE 70011

/* Of this rank, of all, and of the neighbours. */
static int rank, ranks, left, right;

enum type { ints, doubles, bytes, pairs };

struct pair { /* MPI_DOUBLE_INT, with a hole at its end */
    double value;
    int index;
};

static const size_t widths[] = {sizeof(int), sizeof(double), 1,
                                sizeof(struct pair)};

enum how { plainly, in_place = 1, at_once = 2, others = 4, own = 8 };

/* What an operation is given. There are as many blocks as ranks on both sides;
 * sizes and offsets are one block for each rank. */
struct call {
    enum how how;
    char *from, *to;
    int count;
    size_t width;
    MPI_Datatype type;
    MPI_Op op;
    int sizes[MAX_RANKS], offsets[MAX_RANKS];
    const char *file;
    MPI_Request request; /* that is waited for at the end */
};

#define WORLD MPI_COMM_WORLD
#define LAST (ranks - 1)

/* Say on stderr what is wrong, and end the job. */
static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    MPI_Abort(WORLD, 1);
    abort();
}

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

static char *block(char *first, const struct call *c, int index)
{
    return first + (size_t)index * (size_t)c->count * c->width;
}

/* The source, or where it is in the target: at one rank, or at all. */
static const void *source(const struct call *c)
{
    return (c->how & in_place) ? MPI_IN_PLACE : c->from;
}

static const void *source_but_of(const struct call *c, int one)
{
    return (rank == one) ? source(c) : c->from;
}

/* --- reductions ------------------------------------------------------------*/

static void allreduce(struct call *c)
{
    if (c->how & at_once) {
        MPI_Iallreduce(source(c), c->to, c->count, c->type, c->op, WORLD,
                       &c->request);
    } else {
        MPI_Allreduce(source(c), c->to, c->count, c->type, c->op, WORLD);
    }
}

static void reduce(struct call *c)
{
    if (c->how & at_once) {
        MPI_Ireduce(c->from, c->to, c->count, c->type, c->op, 0, WORLD,
                    &c->request);
    } else {
        MPI_Reduce(source_but_of(c, LAST), c->to, c->count, c->type, c->op,
                   LAST, WORLD);
    }
}

static void reduce_scatter(struct call *c)
{
    MPI_Reduce_scatter(source(c), c->to, c->sizes, c->type, c->op, WORLD);
}

static void scan(struct call *c)
{
    MPI_Scan(source(c), c->to, c->count, c->type, c->op, WORLD);
}

/* What the first rank gets is not defined: it has what it had. */
static void exscan(struct call *c)
{
    MPI_Exscan(c->from, c->to, c->count, c->type, c->op, WORLD);
}

/* --- blocks ----------------------------------------------------------------*/

static void bcast(struct call *c)
{
    if (c->how & at_once) {
        MPI_Ibcast(c->to, c->count, c->type, LAST, WORLD, &c->request);
    } else {
        MPI_Bcast(c->to, c->count, c->type, LAST, WORLD);
    }
}

static void gather(struct call *c)
{
    MPI_Gather(source_but_of(c, LAST), c->count, c->type, c->to, c->count,
               c->type, LAST, WORLD);
}

static void scatter(struct call *c)
{
    MPI_Scatter(c->from, c->count, c->type, c->to, c->count, c->type, LAST,
                WORLD);
}

static void allgather(struct call *c)
{
    if (c->how & at_once) {
        MPI_Iallgather(source(c), c->count, c->type, c->to, c->count, c->type,
                       WORLD, &c->request);
    } else {
        MPI_Allgather(source(c), c->count, c->type, c->to, c->count, c->type,
                      WORLD);
    }
}

static void allgatherv(struct call *c)
{
    if (c->how & at_once) {
        MPI_Iallgatherv(source(c), c->count, c->type, c->to, c->sizes,
                        c->offsets, c->type, WORLD, &c->request);
    } else {
        MPI_Allgatherv(source(c), c->count, c->type, c->to, c->sizes,
                       c->offsets, c->type, WORLD);
    }
}

static void alltoall(struct call *c)
{
    MPI_Alltoall(source(c), c->count, c->type, c->to, c->count, c->type, WORLD);
}

static void alltoallv(struct call *c)
{
    if (c->how & others) {
        c->sizes[rank] = 0;
    }
    if (c->how & at_once) {
        MPI_Ialltoallv(source(c), c->sizes, c->offsets, c->type, c->to,
                       c->sizes, c->offsets, c->type, WORLD, &c->request);
    } else {
        MPI_Alltoallv(source(c), c->sizes, c->offsets, c->type, c->to, c->sizes,
                      c->offsets, c->type, WORLD);
    }
}

/* A ring, in which everybody may be its own neighbour, too. */
static void neighbors(struct call *c)
{
    const int count   = (c->how & own) ? 2 : 1;
    const int nodes[] = {right, rank}, sources[] = {left, rank};
    const int weights[2] = {0};
    MPI_Comm graph;

    MPI_Dist_graph_create_adjacent(WORLD, count, sources, weights, count, nodes,
                                   weights, MPI_INFO_NULL, 0, &graph);
    if (c->how & others) {
        MPI_Neighbor_allgather(c->from, c->count, c->type, c->to, c->count,
                               c->type, graph);
    } else {
        MPI_Neighbor_alltoall(c->from, c->count, c->type, c->to, c->count,
                              c->type, graph);
    }
    MPI_Comm_free(&graph);
}

/* --- messages --------------------------------------------------------------*/

/* From the first rank to the last one. */
static void message(struct call *c)
{
    if (rank == LAST) {
        MPI_Recv(c->to, c->count, c->type, 0, 1, WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 0) {
        MPI_Send(c->from, c->count, c->type, LAST, 1, WORLD);
    }
}

/* Both ways at a time, between neighbours. */
static void exchange(struct call *c)
{
    MPI_Request request;

    MPI_Irecv(c->to, c->count, c->type, left, 2, WORLD, &c->request);
    MPI_Isend(c->from, c->count, c->type, right, 2, WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void sendrecv_replace(struct call *c)
{
    MPI_Sendrecv_replace(c->to, c->count, c->type, right, 0, left, 0, WORLD,
                         MPI_STATUS_IGNORE);
}

static void to_itself(struct call *c)
{
    MPI_Sendrecv(c->from, c->count, c->type, rank, 0, c->to, c->count, c->type,
                 rank, 0, WORLD, MPI_STATUS_IGNORE);
}

static void alone(struct call *c)
{
    MPI_Isend(c->from, c->count, c->type, 0, 0, MPI_COMM_SELF, &c->request);
    MPI_Recv(c->to, c->count, c->type, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Allgather(c->from, c->count, c->type, block(c->to, c, 1), c->count,
                  c->type, MPI_COMM_SELF);
}

static void buffered(struct call *c)
{
    int size;
    void *buffer;

    MPI_Pack_size(c->count, c->type, WORLD, &size);
    size += MPI_BSEND_OVERHEAD;
    buffer = malloc((size_t)size);
    MPI_Buffer_attach(buffer, size);
    MPI_Bsend(c->from, c->count, c->type, right, 0, WORLD);
    MPI_Recv(c->to, c->count, c->type, left, 0, WORLD, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&buffer, &size);
    free(buffer);
}

#if (MPI_VERSION >= 4) ||                                                      \
    (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_PARTITIONS
/* All blocks are one message, in as many parts. */
static void psend(struct call *c)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int i;

    MPI_Psend_init(c->from, ranks, c->count, c->type, right, 0, WORLD,
                   MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(c->to, ranks, c->count, c->type, left, 0, WORLD,
                   MPI_INFO_NULL, &requests[1]);
    MPI_Startall(2, requests);
    for (i = LAST; i >= 0; --i) {
        MPI_Pready(i, requests[0]);
    }
    MPI_Waitall(2, requests, statuses);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}
#endif

/* --- datatypes with holes --------------------------------------------------*/

/* Every other element, of twice the room; at most some, since each is copied
 * by itself. */
static MPI_Datatype make_holes(const struct call *c, int *count)
{
    MPI_Datatype made;

    *count = (c->count < 500) ? c->count : 500;
    MPI_Type_vector(*count, 1, 2, c->type, &made);
    MPI_Type_commit(&made);
    return made;
}

static void holes(struct call *c)
{
    int count;
    MPI_Datatype type = make_holes(c, &count);

    MPI_Sendrecv(c->from, 1, type, right, 0, c->to, 1, type, left, 0, WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
}

static void bcast_of_holes(struct call *c)
{
    int count;
    MPI_Datatype type = make_holes(c, &count);

    MPI_Bcast(c->to, 1, type, LAST, WORLD);
    MPI_Type_free(&type);
}

static void pack(struct call *c)
{
    int count, size, at = 0;
    MPI_Datatype type = make_holes(c, &count);

    MPI_Pack_size(1, type, WORLD, &size);
    MPI_Pack(c->from, 1, type, c->to, size, &at, WORLD);
    at = 0;
    MPI_Unpack(c->to, size, &at, c->from, 1, type, WORLD);
    MPI_Type_free(&type);
}

/* --- windows ---------------------------------------------------------------*/

static MPI_Win open_window(const struct call *c, char *base)
{
    MPI_Win window;

    MPI_Win_create(base, (MPI_Aint)ranks * c->count * (MPI_Aint)c->width,
                   (int)c->width, MPI_INFO_NULL, WORLD, &window);
    return window;
}

static void accumulate(struct call *c)
{
    MPI_Win window = open_window(c, c->to);

    MPI_Win_fence(0, window);
    MPI_Accumulate(c->from, c->count, c->type, right, 0, c->count, c->type,
                   c->op, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static void get_accumulate(struct call *c)
{
    MPI_Win window = open_window(c, c->to);

    MPI_Win_fence(0, window);
    MPI_Get_accumulate(block(c->from, c, 0), c->count, c->type,
                       block(c->from, c, 1), c->count, c->type, right, 0,
                       c->count, c->type, c->op, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

/* The first block here to the block of this rank there. */
static void put_into(MPI_Win window, const struct call *c, int target)
{
    MPI_Put(c->from, c->count, c->type, target, (MPI_Aint)rank * c->count,
            c->count, c->type, window);
}

static void put_fence(struct call *c)
{
    MPI_Win window = open_window(c, c->to);

    MPI_Win_fence(0, window);
    put_into(window, c, (c->how & own) ? rank : right);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

/* The block of this rank there to a block here. */
static void get_lock(struct call *c)
{
    MPI_Win window = open_window(c, c->from);

    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, window);
    MPI_Get(block(c->to, c, right), c->count, c->type, right,
            (MPI_Aint)rank * c->count, c->count, c->type, window);
    MPI_Win_unlock(right, window);
    MPI_Barrier(WORLD);
    MPI_Win_free(&window);
}

static void put_post(struct call *c)
{
    MPI_Win window = open_window(c, c->to);
    MPI_Group world, targets, origins;

    MPI_Comm_group(WORLD, &world);
    MPI_Group_incl(world, 1, &right, &targets);
    MPI_Group_incl(world, 1, &left, &origins);
    MPI_Win_post(origins, 0, window);
    MPI_Win_start(targets, 0, window);
    put_into(window, c, right);
    MPI_Win_complete(window);
    MPI_Win_wait(window);
    MPI_Group_free(&origins);
    MPI_Group_free(&targets);
    MPI_Group_free(&world);
    MPI_Win_free(&window);
}

/* To memory attached later: one byte more than is used, since Open MPI 4.1
 * crashes at a put to the last byte. */
static void put_dynamic(struct call *c)
{
    MPI_Win window;
    MPI_Aint here, there;

    MPI_Win_create_dynamic(MPI_INFO_NULL, WORLD, &window);
    MPI_Win_attach(window, c->to,
                   (MPI_Aint)ranks * c->count * (MPI_Aint)c->width + 1);
    MPI_Get_address(block(c->to, c, left), &here);
    MPI_Sendrecv(&here, 1, MPI_AINT, left, 0, &there, 1, MPI_AINT, right, 0,
                 WORLD, MPI_STATUS_IGNORE);
    MPI_Win_fence(0, window);
    MPI_Put(c->from, c->count, c->type, right, there, c->count, c->type,
            window);
    MPI_Win_fence(0, window);
    MPI_Win_detach(window, c->to);
    MPI_Win_free(&window);
}

/* --- files -----------------------------------------------------------------*/

static void file(struct call *c)
{
    const MPI_Offset at = (MPI_Offset)rank * c->count * (MPI_Offset)c->width;
    MPI_File opened;

    if (MPI_File_open(WORLD, c->file,
                      MPI_MODE_CREATE | MPI_MODE_RDWR |
                          MPI_MODE_DELETE_ON_CLOSE,
                      MPI_INFO_NULL, &opened) != MPI_SUCCESS) {
        die("cannot open the file");
    }
    MPI_File_write_at_all(opened, at, c->from, c->count, c->type,
                          MPI_STATUS_IGNORE);
    MPI_File_sync(opened);
    MPI_Barrier(WORLD);
    MPI_File_read_at_all(opened, 0, c->to, c->count * ranks, c->type,
                         MPI_STATUS_IGNORE);
    MPI_File_close(&opened);
}

/* -------------------------------------------------------------------------- */

static const struct operation {
    const char *group, *name;
    void (*run)(struct call *);
    enum how how;
} operations[] = {
    {"reductions", "allreduce", allreduce, plainly},
    {"reductions", "allreduce_in_place", allreduce, in_place},
    {"reductions", "iallreduce", allreduce, at_once},
    {"reductions", "reduce", reduce, plainly},
    {"reductions", "reduce_in_place", reduce, in_place},
    {"reductions", "ireduce", reduce, at_once},
    {"reductions", "reduce_scatter", reduce_scatter, plainly},
    {"reductions", "reduce_scatter_in_place", reduce_scatter, in_place},
    {"reductions", "scan", scan, plainly},
    {"reductions", "scan_in_place", scan, in_place},
    {"reductions", "exscan", exscan, plainly},
    {"blocks", "bcast", bcast, plainly},
    {"blocks", "ibcast", bcast, at_once},
    {"blocks", "gather", gather, plainly},
    {"blocks", "gather_in_place", gather, in_place},
    {"blocks", "scatter", scatter, plainly},
    {"blocks", "allgather", allgather, plainly},
    {"blocks", "allgather_in_place", allgather, in_place},
    {"blocks", "iallgather_in_place", allgather, at_once | in_place},
    {"blocks", "allgatherv", allgatherv, plainly},
    {"blocks", "iallgatherv_in_place", allgatherv, at_once | in_place},
    {"blocks", "alltoall", alltoall, plainly},
    {"blocks", "alltoall_in_place", alltoall, in_place},
    {"blocks", "alltoallv", alltoallv, plainly},
    {"blocks", "alltoallv_others", alltoallv, others},
    {"blocks", "ialltoallv_others", alltoallv, others | at_once},
    {"blocks", "neighbor_alltoall", neighbors, plainly},
    {"blocks", "neighbor_alltoall_own", neighbors, own},
    {"blocks", "neighbor_allgather", neighbors, others},
    {"messages", "message", message, plainly},
    {"messages", "exchange", exchange, plainly},
    {"messages", "sendrecv_replace", sendrecv_replace, plainly},
    {"messages", "to_itself", to_itself, plainly},
    {"messages", "alone", alone, plainly},
    {"messages", "buffered", buffered, plainly},
#ifdef HAS_PARTITIONS
    {"messages", "psend", psend, plainly},
#endif
    {"types", "holes", holes, plainly},
    {"types", "bcast_of_holes", bcast_of_holes, plainly},
    {"types", "pack", pack, plainly},
    {"windows", "accumulate", accumulate, plainly},
    {"windows", "get_accumulate", get_accumulate, plainly},
    {"windows", "put_fence", put_fence, plainly},
    {"windows", "put_own", put_fence, own},
    {"windows", "put_post", put_post, plainly},
    {"windows", "put_dynamic", put_dynamic, plainly},
    {"windows", "get_lock", get_lock, plainly},
    {"files", "file", file, plainly}};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

/* --- what the cards did ----------------------------------------------------*/

typedef int (*get_counters_t)(int fd, struct hlthunk_emu_counters *counters);
static get_counters_t get_counters; /* NULL without the emulator */
static void *emulator;

/* Bytes that this rank has got, and that its card moved in MPI calls. */
static struct {
    uint64_t received, moved;
} traffic;

static void find_counters(void)
{
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

/* Of all ranks, printed by the first one. */
static void report(int with_cards)
{
    uint64_t mine[] = {traffic.received, traffic.moved}, all[2];
    int counted     = (get_counters != NULL), all_counted;

    MPI_Reduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, 0, WORLD);
    MPI_Reduce(&counted, &all_counted, 1, MPI_INT, MPI_MIN, 0, WORLD);
    if (rank != 0) {
        return;
    }
    if (all_counted && (with_cards ? (all[1] < all[0]) : (all[1] != 0))) {
        die("the cards did not move what was sent, or moved what was not");
    }
    if (all_counted) {
        printf("cards moved %s\n", with_cards ? "all" : "nothing");
    }
    printf("all %d ranks have what was sent\n", ranks);
}

/* --- one operation ---------------------------------------------------------*/

/* Small numbers, so that sums are exact in any order. Those of no source are
 * those of a target. */
static int number(size_t i, int side)
{
    return (int)((i * 7 + (i >> 5) * 3 + (size_t)rank * 5 + (size_t)side * 6) %
                 17);
}

static void write_numbers(char *to, enum type type, size_t count, int side)
{
    size_t i;

    memset(to, 0, count * widths[type]);
    for (i = 0; i < count; ++i) {
        switch (type) {
        case ints:
            ((int *)(void *)to)[i] = number(i, side);
            break;
        case doubles:
            ((double *)(void *)to)[i] = number(i, side) / 4.0;
            break;
        case bytes:
            to[i] = (char)number(i, side);
            break;
        default:
            ((struct pair *)(void *)to)[i] =
                (struct pair){number(i, side), rank};
            break;
        }
    }
}

/* What is in holes is nobody's. */
static void clear_holes(char *of, enum type type, size_t count)
{
    struct pair *all = (struct pair *)(void *)of;
    struct pair one;
    size_t i;

    for (i = 0; (type == pairs) && (i < count); ++i) {
        one = all[i];
        memset(&all[i], 0, sizeof(all[i]));
        all[i].value = one.value;
        all[i].index = one.index;
    }
}

/* One side of an operation: on the host, what was there before, as read back,
 * and where it is in truth. */
struct side {
    char *host, *before, *back, *place;
    int is_device;
};

static void copy(void *to, const void *from, size_t length)
{
    if (ucx_gaudi_mem_copy(to, from, length) != UCS_OK) {
        die("cannot copy");
    }
}

static void begin(struct side *side, enum type type, size_t count, int which)
{
    write_numbers(side->host, type, count, which);
    memcpy(side->before, side->host, count * widths[type]);
    if (side->is_device) {
        copy(side->place, side->host, count * widths[type]);
    } else {
        memcpy(side->place, side->host, count * widths[type]);
    }
}

static void end(struct side *side, enum type type, size_t count,
                const char *what)
{
    const size_t length = count * widths[type];
    size_t i;

    if (side->is_device) {
        copy(side->back, side->place, length);
    } else {
        memcpy(side->back, side->place, length);
    }
    clear_holes(side->back, type, count);
    for (i = 0; i < length; ++i) {
        if (side->back[i] != side->host[i]) {
            fprintf(stderr, "%s, %zu bytes: byte %zu is %d, not %d\n", what,
                    length, i, side->back[i], side->host[i]);
            die("contents differ");
        }
    }
}

static void call_it(const struct operation *operation, struct call call,
                    char *from, char *to)
{
    call.how     = operation->how;
    call.from    = from;
    call.to      = to;
    call.request = MPI_REQUEST_NULL;
    operation->run(&call);
    MPI_Wait(&call.request, MPI_STATUS_IGNORE);
}

/* Gives whether anything has changed. */
static int run(const struct operation *operation, const struct call *call,
               struct side sides[2], enum type type)
{
    const size_t count = (size_t)call->count * (size_t)ranks;
    int i, changed = 0;
    uint64_t before;

    for (i = 0; i < 2; ++i) {
        begin(&sides[i], type, count, i);
    }
    call_it(operation, *call, sides[0].host, sides[1].host);
    for (i = 0; i < 2; ++i) {
        clear_holes(sides[i].host, type, count);
        changed |=
            memcmp(sides[i].host, sides[i].before, count * call->width) != 0;
    }
    before = count_dma();
    call_it(operation, *call, sides[0].place, sides[1].place);
    MPI_Barrier(WORLD);
    traffic.received += changed ? call->width : 0;
    traffic.moved += count_dma() - before;
    for (i = 0; i < 2; ++i) {
        end(&sides[i], type, count, operation->name);
    }
    return changed;
}

/* For all types and sizes. Libraries without components of ours, of which
 * single operations are named, do not send pairs as they are. */
static void run_all(const struct operation *operation, struct side sides[2],
                    const char *file, int is_named)
{
    const struct {
        enum type type;
        MPI_Datatype handle;
        MPI_Op op;
    } kinds[]           = {{ints, MPI_INT, MPI_MAX},
                           {doubles, MPI_DOUBLE, MPI_SUM},
                           {bytes, MPI_UNSIGNED_CHAR, MPI_SUM},
                           {pairs, MPI_DOUBLE_INT, MPI_MAXLOC},
                           {ints, MPI_INT, MPI_BXOR},
                           {ints, MPI_INT, MPI_LAND}};
    const int reduces   = !strcmp(operation->group, "reductions");
    const int windows   = !strcmp(operation->group, "windows");
    const size_t number = reduces ? 6 : (windows || is_named) ? 3 : 4;
    size_t kind, size;
    int i, changed = 0, any;

    for (kind = 0; kind < number; ++kind) {
        const enum type type = kinds[kind].type;
        for (size = 0; size < COUNTS + (type == doubles); ++size) {
            const int largest = reduces ? LARGEST : LARGE;
            struct call call  = {.count =
                                    (size < COUNTS) ? counts[size] : largest,
                                 .width = widths[type],
                                 .type  = kinds[kind].handle,
                                 .op    = kinds[kind].op,
                                 .file  = file};
            for (i = 0; i < ranks; ++i) {
                call.sizes[i]   = call.count;
                call.offsets[i] = i * call.count;
            }
            changed |= run(operation, &call, sides, type);
        }
    }
    MPI_Allreduce(&changed, &any, 1, MPI_INT, MPI_LOR, WORLD);
    if (!any) {
        die(operation->name);
    }
}

static char *make_room(size_t size, int is_device)
{
    void *room = NULL;

    if (is_device) {
        (void)ucx_gaudi_mem_alloc(size, NULL, &room);
    } else {
        room = malloc(size);
    }
    if (room == NULL) {
        die("no memory");
    }
    return room;
}

static void start_mpi(int argc, char **argv)
{
    alarm(LIFE_SECONDS);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(WORLD, &rank);
    MPI_Comm_size(WORLD, &ranks);
    right = (rank + 1) % ranks;
    left  = (rank + LAST) % ranks;
    if ((argc < 5) || (ranks < 2) || (ranks > MAX_RANKS)) {
        die("needs FROM TO FOLDER NAME..., and 2 to 8 ranks");
    }
}

int main(int argc, char **argv)
{
    struct side sides[2];
    char path[4096];
    size_t room, i, done;
    int arg, with_cards;

    start_mpi(argc, argv);
    with_cards = !strcmp(argv[1], "gaudi") || !strcmp(argv[2], "gaudi");
    room       = (size_t)ranks * LARGEST * sizeof(double) + 1;
    snprintf(path, sizeof(path), "%s/file", argv[3]);
    if (with_cards && (ucx_gaudi_open(NULL) != UCS_OK)) {
        die("there is no card");
    }
    find_counters();
    for (i = 0; i < 2; ++i) {
        sides[i].is_device = !strcmp(argv[1 + i], "gaudi");
        sides[i].host      = make_room(room, 0);
        sides[i].before    = make_room(room, 0);
        sides[i].back      = make_room(room, 0);
        sides[i].place     = make_room(room, sides[i].is_device);
    }
    for (arg = 4; arg < argc; ++arg) {
        for (i = 0, done = 0; i < OPERATIONS; ++i) {
            if (!strcmp(operations[i].group, argv[arg]) ||
                !strcmp(operations[i].name, argv[arg])) {
                run_all(&operations[i], sides, path,
                        strcmp(operations[i].group, argv[arg]) != 0);
                ++done;
            }
        }
        if (done == 0) {
            die(argv[arg]);
        }
    }
    for (i = 0; i < 2; ++i) {
        if (sides[i].is_device) {
            (void)ucx_gaudi_mem_free(sides[i].place);
        } else {
            free(sides[i].place);
        }
        free(sides[i].host);
        free(sides[i].before);
        free(sides[i].back);
    }
    if (with_cards && (ucx_gaudi_close() != UCS_OK)) {
        die("memory is left");
    }
    if (emulator != NULL) {
        dlclose(emulator);
    }
    report(with_cards);
    MPI_Finalize();
    return 0;
}
