/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The components for Open MPI 5.0, called as it calls them, without it.
 *
 * usage: openmpi_components FOLDER PART    parts are in main
 */
#include "open_mpi_5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucx_gaudi.h>

#define ROOM ((size_t)5 << 20) /* more than they take at a time */

#define CHECK(_condition)                                                      \
    do {                                                                       \
        if (!(_condition)) {                                                   \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #_condition);   \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static struct mpi5_accelerator *module;

static char *make_room(void)
{
    char *room = malloc(ROOM);
    size_t i;

    CHECK(room != NULL);
    for (i = 0; i < ROOM; ++i) {
        room[i] = (char)((i * 2654435761u) >> 11);
    }
    return room;
}

static void *make_device_room(void)
{
    void *device = NULL;

    CHECK(module->allocate(MPI5_NO_CARD, &device, ROOM) == MPI5_SUCCESS);
    return device;
}

static void copy(void *to, const void *from, size_t length)
{
    CHECK(module->copy(MPI5_NO_CARD, MPI5_NO_CARD, to, from, length, 0) ==
          MPI5_SUCCESS);
}

/* --- accelerator -----------------------------------------------------------*/

static void move(char *device, char *host, char *back, ptrdiff_t by)
{
    const size_t from = (by < 0) ? (size_t)-by : 0;
    const size_t to   = (by < 0) ? 0 : (size_t)by;
    const size_t size = ROOM - from - to;

    copy(device, host, ROOM);
    CHECK(module->move(MPI5_NO_CARD, MPI5_NO_CARD, device + to, device + from,
                       size, 4) == MPI5_SUCCESS);
    copy(back, device, ROOM);
    memmove(host + to, host + from, size);
    CHECK(memcmp(back, host, ROOM) == 0);
}

static void test_memory(void)
{
    char *host = make_room(), *back = malloc(ROOM);
    char *device = make_device_room(), *other = make_device_room();
    int card       = 77;
    uint64_t flags = 77;
    void *base     = NULL;
    size_t length  = 0;

    CHECK(module->check_address(host, &card, &flags) == 0);
    CHECK((card == MPI5_NO_CARD) && (flags == 0));
    CHECK(module->check_address(NULL, &card, &flags) == 0);
    CHECK(module->check_address((void *)1, &card, &flags) == 0);
    CHECK(module->check_address(device, &card, &flags) == 1);
    CHECK((card == 0) && (flags == 0));
    CHECK(module->check_address(device + ROOM - 1, &card, &flags) == 1);

    copy(device, host, ROOM);
    copy(other + 1, device, ROOM - 1);
    copy(back, other + 1, ROOM - 1);
    CHECK(memcmp(back, host, ROOM - 1) == 0);
    move(device, host, back, 3);
    move(device, host, back, -3);
    move(device, host, back, 0);
    move(device, host, back, ROOM / 2);

    CHECK(module->get_range(MPI5_NO_CARD, device + 5, &base, &length) ==
          MPI5_SUCCESS);
    CHECK((base == device) && (length == ROOM));
    CHECK(module->get_range(MPI5_NO_CARD, host, &base, &length) < 0);
    CHECK(module->release(MPI5_NO_CARD, NULL) == MPI5_SUCCESS);
    CHECK(module->release(MPI5_NO_CARD, other) == MPI5_SUCCESS);
    CHECK(module->release(MPI5_NO_CARD, device) == MPI5_SUCCESS);
    free(host);
    free(back);
}

/* It stays a card's, so that nobody takes the CPU. */
static void test_freed(void)
{
    char *host = make_room(), *device = make_device_room();
    int card       = 77;
    uint64_t flags = 77;

    CHECK(module->release(MPI5_NO_CARD, device) == MPI5_SUCCESS);
    CHECK(module->check_address(device, &card, &flags) == 1);
    CHECK((card == MPI5_NO_CARD) && (flags == 0));
    CHECK(module->copy(MPI5_NO_CARD, MPI5_NO_CARD, host, device, 1, 0) < 0);
    free(host);
}

/* What is asked for is done when an event is, at the latest. */
static void test_streams(void)
{
    char *host = make_room(), *back = malloc(ROOM);
    char *device               = make_device_room();
    struct mpi5_handle *stream = NULL, *event = NULL;

    CHECK(module->create_stream(MPI5_NO_CARD, &stream) == MPI5_SUCCESS);
    CHECK(module->create_event(MPI5_NO_CARD, &event) == MPI5_SUCCESS);
    CHECK(module->copy_async(MPI5_NO_CARD, MPI5_NO_CARD, device, host, ROOM,
                             stream, 2) == MPI5_SUCCESS);
    CHECK(module->copy_async(MPI5_NO_CARD, MPI5_NO_CARD, back, device, ROOM,
                             stream, 3) == MPI5_SUCCESS);
    CHECK(module->record_event(MPI5_NO_CARD, event, stream) == MPI5_SUCCESS);
    while (module->query_event(MPI5_NO_CARD, event) != MPI5_SUCCESS) {}
    CHECK(memcmp(back, host, ROOM) == 0);
    end_object(&event->super);
    end_object(&stream->super);
    CHECK(module->release(MPI5_NO_CARD, device) == MPI5_SUCCESS);
    free(host);
    free(back);
}

static void test_cards(void)
{
    struct mpi5_pci_address address = {0};
    ucx_gaudi_card_attr_t first     = {.field_mask =
                                           UCX_GAUDI_CARD_ATTR_FIELD_BUS_ID};
    char text[32];
    int card = 77, access = 77;
    void *device = NULL;

    CHECK(module->get_card(&card) == MPI5_SUCCESS);
    CHECK(card == MPI5_NO_CARD);
    CHECK(module->allocate(1, &device, 1) == MPI5_SUCCESS);
    CHECK(module->get_card(&card) == MPI5_SUCCESS);
    CHECK(card == 1);

    CHECK(ucx_gaudi_card_query(0, &first) == UCS_OK);
    CHECK(module->get_pci_address(0, &address) == MPI5_SUCCESS);
    snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", address.domain,
             address.bus, address.device, address.function);
    CHECK(strcmp(text, first.bus_id) == 0);
    CHECK(module->get_pci_address(99, &address) < 0);
    CHECK((module->can_access_peer(&access, 0, 1) == MPI5_SUCCESS) && !access);
}

/* --- op --------------------------------------------------------------------*/

struct element { /* 12 bytes, and a hole behind */
    double value;
    int count;
};

static size_t largest_part; /* that was computed at once */

static void add(const void *in, void *inout, int *count,
                struct mpi5_datatype **type, struct mpi5_object *own)
{
    const struct element *from = in;
    struct element *to         = inout;
    int i;

    CHECK(own->references == 77);
    CHECK(((struct type_of_test *)*type)->stride == sizeof(*to));
    largest_part =
        ((size_t)*count > largest_part) ? (size_t)*count : largest_part;
    for (i = 0; i < *count; ++i) {
        to[i].value = from[i].value - to[i].value;
        to[i].count += from[i].count;
    }
}

static void add_to(const void *a, const void *b, void *out, int *count,
                   struct mpi5_datatype **type, struct mpi5_object *own)
{
    const struct element *first = a, *second = b;
    struct element *to = out;
    int i;

    CHECK(own->references == 77);
    CHECK(((struct type_of_test *)*type)->size == 12);
    for (i = 0; i < *count; ++i) {
        to[i].value = first[i].value - second[i].value;
        to[i].count = first[i].count + second[i].count;
    }
}

static void fill(struct element *of, size_t count, int seed)
{
    size_t i;

    memset(of, seed, count * sizeof(*of));
    for (i = 0; i < count; ++i) {
        of[i].value = (double)(i % 1000) * seed;
        of[i].count = (int)i + seed;
    }
}

/* All sides in host or in device memory, by the bits of where. Of device memory
 * the last bytes are allocated without the hole. */
static void reduce(const struct mpi5_op *op, int count, unsigned where,
                   int with_three)
{
    struct type_of_test type = {.stride = sizeof(struct element), .size = 12};
    struct mpi5_datatype *datatype = (struct mpi5_datatype *)(void *)&type;
    const size_t bytes = ((size_t)count - 1) * sizeof(struct element) + 12;
    struct element *host[3], *wanted = calloc((size_t)count, sizeof(*wanted));
    void *side[3];
    int i;

    for (i = 0; i < 3; ++i) {
        host[i] = calloc((size_t)count, sizeof(**host));
        CHECK((host[i] != NULL) && (wanted != NULL));
        fill(host[i], (size_t)count, i + 1);
        side[i] = host[i];
        if (where & (1u << i)) {
            CHECK(module->allocate(MPI5_NO_CARD, &side[i], bytes) ==
                  MPI5_SUCCESS);
            copy(side[i], host[i], bytes);
        }
    }
    for (i = 0; i < count; ++i) {
        const struct element *other = with_three ? host[1] : host[2];
        wanted[i].value             = host[0][i].value - other[i].value;
        wanted[i].count             = host[0][i].count + other[i].count;
    }
    if (with_three) {
        op->reduce_to[5](side[0], side[1], side[2], &count, &datatype,
                         op->reduce_to_modules[5]);
    } else {
        op->reduce[5](side[0], side[2], &count, &datatype,
                      op->reduce_modules[5]);
    }
    for (i = 0; i < 3; ++i) {
        if (where & (1u << i)) {
            copy(host[i], side[i], bytes);
            CHECK(module->release(MPI5_NO_CARD, side[i]) == MPI5_SUCCESS);
        }
    }
    for (i = 0; i < count; ++i) {
        CHECK(host[0][i].value == (double)(i % 1000));
        CHECK(host[2][i].value == wanted[i].value);
        CHECK(host[2][i].count == wanted[i].count);
    }
    for (i = 0; i < 3; ++i) {
        free(host[i]);
    }
    free(wanted);
}

static void test_operations(const char *folder)
{
    static void (*none[])(void *) = {NULL};
    static struct mpi5_class kind = {.destructors = none};
    struct mpi5_object own        = {.kind = &kind, .references = 77};
    struct mpi5_op op = {.reduce = {[5] = add}, .reduce_to = {[5] = add_to}};
    static const int counts[] = {1, 2, 1000, 200001};
    unsigned where;
    size_t i;

    op.reduce_modules[5]    = &own;
    op.reduce_to_modules[5] = &own;
    CHECK(start_operations(folder, &op) == MPI5_SUCCESS);
    CHECK((op.reduce[5] != add) && (op.reduce_to[5] != add_to));
    CHECK((op.reduce[4] == NULL) && (op.reduce_to[4] == NULL));
    for (i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        for (where = 0; where < 8; ++where) {
            largest_part = 0;
            reduce(&op, counts[i], where, 0);
            CHECK((largest_part == (size_t)counts[i]) ||
                  ((where & 5) && (largest_part < 200001)));
            reduce(&op, counts[i], where, 1);
        }
    }
    /* The references that the operation had go with it. */
    end_object(op.reduce_modules[5]);
    end_object(op.reduce_to_modules[5]);
    CHECK(own.references == 75);
}

/* An element behind the end of the memory. Ends the process. */
static void reduce_beyond(const char *folder)
{
    struct type_of_test type       = {.stride = ROOM, .size = ROOM};
    struct mpi5_datatype *datatype = (struct mpi5_datatype *)(void *)&type;
    struct mpi5_object own         = {.references = 77};
    struct mpi5_op op              = {.reduce = {add}};
    char *device                   = make_device_room();
    int count                      = 1;

    op.reduce_modules[0] = &own;
    CHECK(start_operations(folder, &op) == MPI5_SUCCESS);
    op.reduce[0](device + 1, device + 1, &count, &datatype,
                 op.reduce_modules[0]);
}

/* -------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    struct mpi5_op op = {.flags = 1};

    CHECK(argc == 3);
    module = start_accelerator(argv[1]);
    if (!strcmp(argv[2], "refused")) {
        CHECK(module == NULL);
        CHECK(start_operations(argv[1], &op) != MPI5_SUCCESS);
        return 0;
    }
    CHECK(module != NULL);
    if (!strcmp(argv[2], "memory")) {
        test_memory();
    } else if (!strcmp(argv[2], "streams")) {
        test_streams();
    } else if (!strcmp(argv[2], "cards")) {
        test_cards();
    } else if (!strcmp(argv[2], "freed")) {
        test_freed();
    } else if (!strcmp(argv[2], "beyond")) {
        reduce_beyond(argv[1]);
    } else {
        CHECK(!strcmp(argv[2], "operations"));
        test_operations(argv[1]);
    }
    return 0;
}
