/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of an MPI library that knows memory of cards: what they leave
 * there is, byte by byte, what they leave in host memory, in source and target.
 *
 * usage: mpi_as_on_host gaudi|host FOLDER GROUP...    under mpiexec
 *
 * Groups are reductions, blocks, messages, types, windows and files; each
 * operation runs with several types and sizes. With host, both sides are host
 * memory, which shows that the program itself is right.
 */
#include "mpi_memory.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucx_gaudi.h>

#define MAX_RANKS 8

/* Elements of a block. */
static const int counts[] = {1, 1000};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* One more size, of doubles alone: reductions of more than the library's
 * component computes at a time, else messages that UCX sends by rendezvous. */
#define LARGEST 140001
#define LARGE 20011

struct pair { /* MPI_DOUBLE_INT, with a hole at its end */
    double value;
    int index;
};

enum type { ints, doubles, bytes, pairs, types };

static const size_t widths[] = {sizeof(int), sizeof(double), 1,
                                sizeof(struct pair)};

static MPI_Datatype handle_of(enum type type)
{
    switch (type) {
    case ints:
        return MPI_INT;
    case doubles:
        return MPI_DOUBLE;
    case bytes:
        return MPI_UNSIGNED_CHAR;
    default:
        return MPI_DOUBLE_INT;
    }
}

/* What an operation is given. There are as many blocks as ranks on both sides;
 * counts and offsets are one block for each rank. */
struct call {
    char *from, *to;
    int count;
    size_t width;
    MPI_Datatype type;
    MPI_Op op;
    int sizes[MAX_RANKS], offsets[MAX_RANKS];
    MPI_Datatype all_types[MAX_RANKS];
    int byte_offsets[MAX_RANKS];
    const char *file;
};

static char *block(char *first, const struct call *call, int index)
{
    return first + (size_t)index * (size_t)call->count * call->width;
}

static void wait_for(MPI_Request request)
{
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

#define WORLD MPI_COMM_WORLD
#define LAST (ranks - 1)

/* --- reductions ------------------------------------------------------------*/

static void allreduce(struct call *c)
{
    MPI_Allreduce(c->from, c->to, c->count, c->type, c->op, WORLD);
}

static void allreduce_in_place(struct call *c)
{
    MPI_Allreduce(MPI_IN_PLACE, c->to, c->count, c->type, c->op, WORLD);
}

static void iallreduce(struct call *c)
{
    MPI_Request request;

    MPI_Iallreduce(c->from, c->to, c->count, c->type, c->op, WORLD, &request);
    wait_for(request);
}

static void iallreduce_in_place(struct call *c)
{
    MPI_Request request;

    MPI_Iallreduce(MPI_IN_PLACE, c->to, c->count, c->type, c->op, WORLD,
                   &request);
    wait_for(request);
}

static void reduce(struct call *c)
{
    MPI_Reduce(c->from, c->to, c->count, c->type, c->op, LAST, WORLD);
}

static void reduce_in_place(struct call *c)
{
    MPI_Reduce((rank == 0) ? MPI_IN_PLACE : c->from, c->to, c->count, c->type,
               c->op, 0, WORLD);
}

static void ireduce(struct call *c)
{
    MPI_Request request;

    MPI_Ireduce(c->from, c->to, c->count, c->type, c->op, 0, WORLD, &request);
    wait_for(request);
}

static void reduce_scatter(struct call *c)
{
    MPI_Reduce_scatter(c->from, c->to, c->sizes, c->type, c->op, WORLD);
}

static void reduce_scatter_in_place(struct call *c)
{
    MPI_Reduce_scatter(MPI_IN_PLACE, c->to, c->sizes, c->type, c->op, WORLD);
}

static void reduce_scatter_block(struct call *c)
{
    MPI_Reduce_scatter_block(c->from, c->to, c->count, c->type, c->op, WORLD);
}

static void scan(struct call *c)
{
    MPI_Scan(c->from, c->to, c->count, c->type, c->op, WORLD);
}

static void scan_in_place(struct call *c)
{
    MPI_Scan(MPI_IN_PLACE, c->to, c->count, c->type, c->op, WORLD);
}

/* What the first rank gets is not defined: it has what it had. */
static void exscan(struct call *c)
{
    MPI_Exscan(c->from, c->to, c->count, c->type, c->op, WORLD);
}

static void reduce_local(struct call *c)
{
    MPI_Reduce_local(c->from, c->to, c->count, c->type, c->op);
}

/* --- blocks ----------------------------------------------------------------*/

static void gather(struct call *c)
{
    MPI_Gather(c->from, c->count, c->type, c->to, c->count, c->type, LAST,
               WORLD);
}

static void gather_in_place(struct call *c)
{
    MPI_Gather((rank == 0) ? MPI_IN_PLACE : c->from, c->count, c->type, c->to,
               c->count, c->type, 0, WORLD);
}

static void gatherv(struct call *c)
{
    MPI_Gatherv(c->from, c->count, c->type, c->to, c->sizes, c->offsets,
                c->type, LAST, WORLD);
}

static void igather(struct call *c)
{
    MPI_Request request;

    MPI_Igather(c->from, c->count, c->type, c->to, c->count, c->type, LAST,
                WORLD, &request);
    wait_for(request);
}

static void scatter(struct call *c)
{
    MPI_Scatter(c->from, c->count, c->type, c->to, c->count, c->type, LAST,
                WORLD);
}

static void scatter_in_place(struct call *c)
{
    MPI_Scatter(c->from, c->count, c->type,
                (rank == 0) ? MPI_IN_PLACE : (void *)c->to, c->count, c->type,
                0, WORLD);
}

static void scatterv(struct call *c)
{
    MPI_Scatterv(c->from, c->sizes, c->offsets, c->type, c->to, c->count,
                 c->type, LAST, WORLD);
}

static void allgather(struct call *c)
{
    MPI_Allgather(c->from, c->count, c->type, c->to, c->count, c->type, WORLD);
}

static void allgather_in_place(struct call *c)
{
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, c->to, c->count, c->type,
                  WORLD);
}

static void allgatherv(struct call *c)
{
    MPI_Allgatherv(c->from, c->count, c->type, c->to, c->sizes, c->offsets,
                   c->type, WORLD);
}

static void iallgather(struct call *c)
{
    MPI_Request request;

    MPI_Iallgather(c->from, c->count, c->type, c->to, c->count, c->type, WORLD,
                   &request);
    wait_for(request);
}

static void alltoall(struct call *c)
{
    MPI_Alltoall(c->from, c->count, c->type, c->to, c->count, c->type, WORLD);
}

static void alltoall_in_place(struct call *c)
{
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, c->to, c->count, c->type,
                 WORLD);
}

static void ialltoall(struct call *c)
{
    MPI_Request request;

    MPI_Ialltoall(c->from, c->count, c->type, c->to, c->count, c->type, WORLD,
                  &request);
    wait_for(request);
}

static void alltoallv(struct call *c)
{
    MPI_Alltoallv(c->from, c->sizes, c->offsets, c->type, c->to, c->sizes,
                  c->offsets, c->type, WORLD);
}

static void alltoallv_in_place(struct call *c)
{
    MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, c->to, c->sizes,
                  c->offsets, c->type, WORLD);
}

static void ialltoallv(struct call *c)
{
    MPI_Request request;

    MPI_Ialltoallv(c->from, c->sizes, c->offsets, c->type, c->to, c->sizes,
                   c->offsets, c->type, WORLD, &request);
    wait_for(request);
}

static void alltoallw(struct call *c)
{
    MPI_Alltoallw(c->from, c->sizes, c->byte_offsets, c->all_types, c->to,
                  c->sizes, c->byte_offsets, c->all_types, WORLD);
}

/* A ring in which everybody is its own neighbour, too. */
static void neighbors(struct call *c)
{
    const int nodes[] = {rank, right}, sources[] = {rank, left};
    const int weights[2] = {0};
    MPI_Comm graph;

    MPI_Dist_graph_create_adjacent(WORLD, 2, sources, weights, 2, nodes,
                                   weights, MPI_INFO_NULL, 0, &graph);
    MPI_Neighbor_alltoall(c->from, c->count, c->type, c->to, c->count, c->type,
                          graph);
    MPI_Comm_free(&graph);
}

/* --- messages --------------------------------------------------------------*/

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
    MPI_Request request;

    MPI_Isend(c->from, c->count, c->type, 0, 0, MPI_COMM_SELF, &request);
    MPI_Recv(c->to, c->count, c->type, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    wait_for(request);
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
    if (buffer == NULL) {
        die("no memory");
    }
    MPI_Buffer_attach(buffer, size);
    MPI_Bsend(c->from, c->count, c->type, right, 0, WORLD);
    MPI_Recv(c->to, c->count, c->type, left, 0, WORLD, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&buffer, &size);
    free(buffer);
}

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

static void holes_filled(struct call *c)
{
    int count;
    MPI_Datatype type = make_holes(c, &count);

    MPI_Sendrecv(c->from, 1, type, right, 0, c->to, count, c->type, left, 0,
                 WORLD, MPI_STATUS_IGNORE);
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

static MPI_Win open_window(struct call *c)
{
    MPI_Win window;

    MPI_Win_create(c->to, (MPI_Aint)ranks * c->count * (MPI_Aint)c->width,
                   (int)c->width, MPI_INFO_NULL, WORLD, &window);
    MPI_Win_fence(0, window);
    return window;
}

static void accumulate(struct call *c)
{
    MPI_Win window = open_window(c);

    MPI_Accumulate(c->from, c->count, c->type, right, 0, c->count, c->type,
                   c->op, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static void get_accumulate(struct call *c)
{
    MPI_Win window = open_window(c);

    MPI_Get_accumulate(block(c->from, c, 0), c->count, c->type,
                       block(c->from, c, 1), c->count, c->type, right, 0,
                       c->count, c->type, c->op, window);
    MPI_Win_fence(0, window);
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
} operations[] = {
#define OPERATION(_group, _name)                                               \
    {                                                                          \
        _group, #_name, _name                                                  \
    }
    OPERATION("reductions", allreduce),
    OPERATION("reductions", allreduce_in_place),
    OPERATION("reductions", iallreduce),
    OPERATION("reductions", iallreduce_in_place),
    OPERATION("reductions", reduce),
    OPERATION("reductions", reduce_in_place),
    OPERATION("reductions", ireduce),
    OPERATION("reductions", reduce_scatter),
    OPERATION("reductions", reduce_scatter_in_place),
    OPERATION("reductions", reduce_scatter_block),
    OPERATION("reductions", scan),
    OPERATION("reductions", scan_in_place),
    OPERATION("reductions", exscan),
    OPERATION("reductions", reduce_local),
    OPERATION("blocks", gather),
    OPERATION("blocks", gather_in_place),
    OPERATION("blocks", gatherv),
    OPERATION("blocks", igather),
    OPERATION("blocks", scatter),
    OPERATION("blocks", scatter_in_place),
    OPERATION("blocks", scatterv),
    OPERATION("blocks", allgather),
    OPERATION("blocks", allgather_in_place),
    OPERATION("blocks", allgatherv),
    OPERATION("blocks", iallgather),
    OPERATION("blocks", alltoall),
    OPERATION("blocks", alltoall_in_place),
    OPERATION("blocks", ialltoall),
    OPERATION("blocks", alltoallv),
    OPERATION("blocks", alltoallv_in_place),
    OPERATION("blocks", ialltoallv),
    OPERATION("blocks", alltoallw),
    OPERATION("blocks", neighbors),
    OPERATION("messages", sendrecv_replace),
    OPERATION("messages", to_itself),
    OPERATION("messages", alone),
    OPERATION("messages", buffered),
    OPERATION("types", holes),
    OPERATION("types", holes_filled),
    OPERATION("types", bcast_of_holes),
    OPERATION("types", pack),
    OPERATION("windows", accumulate),
    OPERATION("windows", get_accumulate),
    OPERATION("files", file)};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

/* Small numbers, so that sums are exact in any order. */
static int number(size_t i, int side)
{
    return (int)((i * 7 + (i >> 5) * 3 + (size_t)rank * 5 + (size_t)side * 11) %
                 13);
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

/* One side of an operation, three times: on the host, what was there before,
 * and as read back. */
struct side {
    char *host, *before, *back;
    struct memory memory;
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
    if (side->memory.kind == gaudi_memory) {
        copy(side->memory.device, side->host, count * widths[type]);
    } else {
        memcpy(side->memory.host, side->host, count * widths[type]);
    }
}

static void end(struct side *side, enum type type, size_t count,
                const char *what)
{
    const size_t length = count * widths[type];
    size_t i;

    if (side->memory.kind == gaudi_memory) {
        copy(side->back, side->memory.device, length);
    } else {
        memcpy(side->back, side->memory.host, length);
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

static char *place_of(const struct side *side)
{
    return (side->memory.kind == gaudi_memory) ? side->memory.device
                                               : side->memory.host;
}

/* Gives whether anything has changed. */
static int run(const struct operation *operation, const struct call *given,
               struct side sides[2], enum type type)
{
    const size_t count = (size_t)given->count * (size_t)ranks;
    struct call call   = *given;
    int i, changed = 0;
    uint64_t before;

    for (i = 0; i < 2; ++i) {
        begin(&sides[i], type, count, i);
    }
    call.from = sides[0].host;
    call.to   = sides[1].host;
    operation->run(&call);
    for (i = 0; i < 2; ++i) {
        clear_holes(sides[i].host, type, count);
        changed |= memcmp(sides[i].host, sides[i].before, count * call.width);
    }
    before    = count_dma();
    call.from = place_of(&sides[0]);
    call.to   = place_of(&sides[1]);
    operation->run(&call);
    MPI_Barrier(WORLD);
    account(sides[0].memory.kind, changed ? call.width : 0, before);
    for (i = 0; i < 2; ++i) {
        end(&sides[i], type, count, operation->name);
    }
    return changed != 0;
}

/* For all types and sizes; pairs and operations belong together. */
static void run_all(const struct operation *operation, struct side sides[2],
                    const char *file)
{
    static const struct {
        enum type type;
        MPI_Op op;
    } kinds[]         = {{ints, MPI_MAX},    {ints, MPI_BXOR}, {ints, MPI_LAND},
                         {doubles, MPI_SUM}, {bytes, MPI_SUM}, {pairs, MPI_MAXLOC}};
    const int reduces = !strcmp(operation->group, "reductions") ||
                        !strcmp(operation->group, "windows");
    size_t kind, size;
    int i, changed = 0, any;

    for (kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); ++kind) {
        const enum type type = kinds[kind].type;
        if (!reduces && (type == ints) && (kinds[kind].op != MPI_MAX)) {
            continue;
        }
        if (!strcmp(operation->group, "windows") && (type == pairs)) {
            continue;
        }
        for (size = 0; size < COUNTS + (type == doubles); ++size) {
            const int count  = (size < COUNTS) ? counts[size]
                               : reduces       ? LARGEST
                                               : LARGE;
            struct call call = {.count = count,
                                .width = widths[type],
                                .type  = handle_of(type),
                                .op    = kinds[kind].op,
                                .file  = file};
            for (i = 0; i < ranks; ++i) {
                call.sizes[i]        = call.count;
                call.offsets[i]      = i * call.count;
                call.all_types[i]    = call.type;
                call.byte_offsets[i] = i * call.count * (int)call.width;
            }
            changed |= run(operation, &call, sides, type);
        }
    }
    MPI_Allreduce(&changed, &any, 1, MPI_INT, MPI_LOR, WORLD);
    if (!any) {
        fprintf(stderr, "%s\n", operation->name);
        die("an operation does nothing");
    }
}

static char *make_room(size_t size)
{
    char *room = malloc(size);

    if (room == NULL) {
        die("no memory");
    }
    return room;
}

int main(int argc, char **argv)
{
    struct side sides[2];
    char path[4096];
    enum kind kind;
    size_t room, i, done = 0;
    int group;

    kind = start_program(argc, argv, 3, MAX_RANKS);
    room = (size_t)ranks * LARGEST * sizeof(double);
    snprintf(path, sizeof(path), "%s/file", argv[2]);
    start_memory(room, kind == gaudi_memory);
    for (i = 0; i < 2; ++i) {
        sides[i].host   = make_room(room);
        sides[i].before = make_room(room);
        sides[i].back   = make_room(room);
        allocate(&sides[i].memory, kind);
    }
    for (group = 3; group < argc; ++group) {
        for (i = 0; i < OPERATIONS; ++i) {
            if (!strcmp(operations[i].group, argv[group]) ||
                !strcmp(operations[i].name, argv[group])) {
                run_all(&operations[i], sides, path);
                ++done;
            }
        }
    }
    if (done == 0) {
        die("there is no such group");
    }
    for (i = 0; i < 2; ++i) {
        release(&sides[i].memory);
        free(sides[i].host);
        free(sides[i].before);
        free(sides[i].back);
    }
    end_program();
    return 0;
}
