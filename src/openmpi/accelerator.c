/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Component gaudi of Open MPI's framework accelerator, see
 * opal/mca/accelerator/accelerator.h there.
 *
 * Streams have nothing under way: what is asked for is done when the call
 * returns, which is as early as a caller may take it to be done. Open MPI 5.0
 * itself copies asynchronously with CUDA alone (btl/smcuda).
 */
#include "openmpi/openmpi.h"

#include "loader/loader.h"
#include "openmpi/abi.h"
#include "program/ucx_gaudi.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The least that a memory move takes through the host at a time. */
#define MOVE_PIECE ((size_t)1 << 20)

/* The end of host memory, as util/addresses.h has it. What is behind it is a
 * card's also when it was freed or the card is lost: a copy fails then, and
 * UCX's log tells why, where the CPU would crash. */
#define HOST_END ((uintptr_t)1 << 56)

/* Functions of the module, without looking for their names at each call. */
static __typeof__(&ucx_gaudi_mem_query) query_memory;
static __typeof__(&ucx_gaudi_mem_copy) copy_memory;

/* --- memory ----------------------------------------------------------------*/

static bool look_up(const void *address, ucx_gaudi_mem_attr_t *found)
{
    return query_memory(address, 1, found) == UCS_OK;
}

/* "gaudi3" is card 3. */
static int number_of(const char *name)
{
    int number;

    return (sscanf(name, "gaudi%d", &number) == 1) ? number : MPI5_NO_CARD;
}

bool gaudi_mpi_is_on_card(const void *address)
{
    ucx_gaudi_mem_attr_t found = {.field_mask = 0};

    return ((uintptr_t)address >= HOST_END) || look_up(address, &found);
}

bool gaudi_mpi_copy(void *to, const void *from, size_t length)
{
    return copy_memory(to, from, length) == UCS_OK;
}

static int check_address(const void *address, int *card, uint64_t *flags)
{
    ucx_gaudi_mem_attr_t found = {.field_mask = UCX_GAUDI_MEM_ATTR_FIELD_CARD};

    *card  = MPI5_NO_CARD;
    *flags = 0;
    if (look_up(address, &found)) {
        *card = number_of(found.card);
        return 1;
    }
    return gaudi_mpi_is_on_card(address);
}

static int copy(int to_card, int from_card, void *to, const void *from,
                size_t length, int kind)
{
    (void)to_card;
    (void)from_card;
    (void)kind;
    return gaudi_mpi_copy(to, from, length) ? MPI5_SUCCESS : MPI5_ERROR;
}

/* As memmove does: from the end that is not overwritten first, in pieces. */
static int move_overlapping(char *to, const char *from, size_t length)
{
    const size_t largest = (length < MOVE_PIECE) ? length : MOVE_PIECE;
    const bool backwards = (to > from);
    char *piece          = malloc(largest);
    size_t done, at, size;
    bool good = true;

    if (piece == NULL) {
        return MPI5_NO_RESOURCE;
    }
    for (done = 0; good && (done < length); done += size) {
        size = (length - done < largest) ? length - done : largest;
        at   = backwards ? length - done - size : done;
        good = gaudi_mpi_copy(piece, from + at, size) &&
               gaudi_mpi_copy(to + at, piece, size);
    }
    free(piece);
    return good ? MPI5_SUCCESS : MPI5_ERROR;
}

static int move(int to_card, int from_card, void *to, const void *from,
                size_t length, int kind)
{
    const uintptr_t first  = (uintptr_t)to;
    const uintptr_t second = (uintptr_t)from;
    const uintptr_t apart  = (first > second) ? first - second : second - first;

    return ((apart == 0) || (apart >= length))
               ? copy(to_card, from_card, to, from, length, kind)
               : move_overlapping(to, from, length);
}

static int allocate(int card, void **address, size_t length)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", card);
    return (ucx_gaudi_mem_alloc(length, (card == MPI5_NO_CARD) ? NULL : number,
                                address) == UCS_OK)
               ? MPI5_SUCCESS
               : MPI5_ERROR;
}

static int release(int card, void *address)
{
    (void)card;
    return (ucx_gaudi_mem_free(address) == UCS_OK) ? MPI5_SUCCESS : MPI5_ERROR;
}

static int get_range(int card, const void *address, void **base, size_t *length)
{
    ucx_gaudi_mem_attr_t found = {.field_mask =
                                      UCX_GAUDI_MEM_ATTR_FIELD_BASE |
                                      UCX_GAUDI_MEM_ATTR_FIELD_LENGTH};

    (void)card;
    if (!look_up(address, &found)) {
        return MPI5_ERROR;
    }
    *base   = found.base;
    *length = found.length;
    return MPI5_SUCCESS;
}

/* UCX registers what it sends by itself. */
static int register_host(int card, void *address, size_t length)
{
    (void)card;
    (void)address;
    (void)length;
    return MPI5_NOT_IMPLEMENTED;
}

static int unregister_host(int card, void *address)
{
    (void)card;
    (void)address;
    return MPI5_NOT_IMPLEMENTED;
}

/* Nothing tells an allocation from a later one at its address. */
static int get_buffer_id(int card, const void *address, uint64_t *id)
{
    (void)card;
    (void)address;
    *id = 0;
    return MPI5_NOT_IMPLEMENTED;
}

/* --- streams and events ----------------------------------------------------*/

static void (*no_destructors[])(void *) = {NULL};

static struct mpi5_class handle_class = {.name        = "ucx_gaudi_handle",
                                         .destructors = no_destructors,
                                         .size = sizeof(struct mpi5_handle)};

static int create_handle(int card, struct mpi5_handle **handle)
{
    (void)card;
    *handle = calloc(1, sizeof(**handle));
    if (*handle == NULL) {
        return MPI5_NO_RESOURCE;
    }
    (*handle)->super.kind       = &handle_class;
    (*handle)->super.references = 1;
    return MPI5_SUCCESS;
}

static int record_event(int card, struct mpi5_handle *event,
                        struct mpi5_handle *stream)
{
    (void)card;
    (void)event;
    (void)stream;
    return MPI5_SUCCESS;
}

static int query_event(int card, struct mpi5_handle *event)
{
    (void)card;
    (void)event;
    return MPI5_SUCCESS;
}

static int copy_async(int to_card, int from_card, void *to, const void *from,
                      size_t length, struct mpi5_handle *stream, int kind)
{
    (void)stream;
    return copy(to_card, from_card, to, from, length, kind);
}

/* --- cards -----------------------------------------------------------------*/

/* The first card that this process has. */
static int get_card(int *card)
{
    ucx_gaudi_card_attr_t found = {.field_mask =
                                       UCX_GAUDI_CARD_ATTR_FIELD_NAME |
                                       UCX_GAUDI_CARD_ATTR_FIELD_STATE};
    unsigned i;

    *card = MPI5_NO_CARD;
    for (i = 0; ucx_gaudi_card_query(i, &found) == UCS_OK; ++i) {
        if (found.state == UCX_GAUDI_CARD_OPEN) {
            *card = number_of(found.name);
            break;
        }
    }
    return MPI5_SUCCESS;
}

static int get_pci_address(int card, struct mpi5_pci_address *address)
{
    ucx_gaudi_card_attr_t found = {.field_mask =
                                       UCX_GAUDI_CARD_ATTR_FIELD_NAME |
                                       UCX_GAUDI_CARD_ATTR_FIELD_BUS_ID};
    unsigned i;

    for (i = 0; ucx_gaudi_card_query(i, &found) == UCS_OK; ++i) {
        if ((number_of(found.name) == card) &&
            (sscanf(found.bus_id, "%hx:%hhx:%hhx.%hhx", &address->domain,
                    &address->bus, &address->device,
                    &address->function) == 4)) {
            return MPI5_SUCCESS;
        }
    }
    return MPI5_ERROR;
}

/* Memory of other cards is copied, never touched in place. */
static int can_access_peer(int *access, int card, int peer)
{
    *access = (card == peer);
    return MPI5_SUCCESS;
}

/* --- the component ---------------------------------------------------------*/

static struct mpi5_accelerator functions = {.check_address   = check_address,
                                            .create_stream   = create_handle,
                                            .create_event    = create_handle,
                                            .record_event    = record_event,
                                            .query_event     = query_event,
                                            .copy_async      = copy_async,
                                            .copy            = copy,
                                            .move            = move,
                                            .allocate        = allocate,
                                            .release         = release,
                                            .get_range       = get_range,
                                            .register_host   = register_host,
                                            .unregister_host = unregister_host,
                                            .get_card        = get_card,
                                            .get_pci_address = get_pci_address,
                                            .can_access_peer = can_access_peer,
                                            .get_buffer_id   = get_buffer_id};

static bool is_known;

bool gaudi_mpi_knows_cards(void)
{
    return is_known;
}

/* NULL leaves the place to the component that knows of no cards. */
static struct mpi5_accelerator *init(void)
{
    const void *caller         = __builtin_return_address(0);
    ucx_gaudi_card_attr_t card = {.field_mask = 0};
    size_t size                = 0;

    is_known = false;
    if ((gaudi_mpi_variable(caller, "opal_accelerator", &size) == NULL) ||
        (size != sizeof(functions))) {
        return NULL; /* not 5.0 */
    }
    if (!gaudi_mpi_class_has_size(caller, "opal_accelerator_stream_t_class",
                                  sizeof(struct mpi5_handle))) {
        gaudi_say("Open MPI's objects are not as 5.0 has them, so it will not "
                  "know device memory: is it a debug build? (use one without "
                  "--enable-debug)");
        return NULL;
    }
    if (ucx_gaudi_card_query(0, &card) != UCS_OK) {
        return NULL;
    }
    query_memory =
        (__typeof__(query_memory))gaudi_module_function("ucx_gaudi_mem_query");
    copy_memory =
        (__typeof__(copy_memory))gaudi_module_function("ucx_gaudi_mem_copy");
    is_known = true;
    return &functions;
}

static void finalize(struct mpi5_accelerator *module)
{
    (void)module;
}

GAUDI_EXPORT extern const struct mpi5_accelerator_component
    mca_accelerator_gaudi_component;
const struct mpi5_accelerator_component mca_accelerator_gaudi_component = {
    .base     = {MPI5_COMPONENT("opal", "accelerator")},
    .init     = init,
    .finalize = finalize};
