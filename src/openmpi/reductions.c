/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Component gaudi of Open MPI's framework op, see ompi/mca/op/op.h there: the
 * operations that MPI defines, on memory of cards. Pieces of it are brought to
 * the host, where the functions compute that would be called without this, and
 * the result goes back. What is no card's is passed on to these as it is.
 *
 * All algorithms of all collectives come here, MPI_Reduce_local and
 * MPI_Accumulate, too. Functions of the program (MPI_Op_create) do not.
 */
#include "openmpi/openmpi.h"

#include "loader/loader.h"
#include "openmpi/abi.h"

#include <stdlib.h>

/* Of each argument at a time. */
#define PIECE ((size_t)1 << 20)

#define PRIORITY 100 /* the highest one comes last, above the others */

/* Signatures of MPI_Type_get_extent and MPI_Type_get_true_extent. */
typedef int (*get_extent_t)(struct mpi5_datatype *type, ptrdiff_t *lower,
                            ptrdiff_t *extent);

static get_extent_t get_extent, get_true_extent;

/* Takes the place of the function for one type of an operation, and what was
 * there. */
struct replaced {
    struct mpi5_object super;
    struct mpi5_object *module; /* with the reference that the operation had */
    mpi5_reduce_t reduce;       /* one of these, the other one is NULL */
    mpi5_reduce_to_t reduce_to;
};

/* Elements of a type. */
struct elements {
    size_t stride;
    size_t size; /* without what is behind the last one */
    size_t per_piece;
};

__attribute__((noreturn)) static void fail(const char *why)
{
    /* As Open MPI itself ends when a copy of a card's memory fails. */
    gaudi_say("a reduction of device memory cannot go on: %s", why);
    abort();
}

static struct elements look_at(struct mpi5_datatype *type)
{
    ptrdiff_t lower, extent, size;

    if (get_extent(type, &lower, &extent) ||
        get_true_extent(type, &lower, &size) || (extent <= 0) || (size <= 0)) {
        fail("its type has no extent");
    }
    return (struct elements){
        .stride    = (size_t)extent,
        .size      = (size_t)size,
        .per_piece = ((size_t)extent < PIECE) ? PIECE / (size_t)extent : 1};
}

static size_t bytes_of(const struct elements *elements, int count)
{
    return (size_t)(count - 1) * elements->stride + elements->size;
}

/* Nothing else of the host gets to the card between elements. */
static char *make_piece(size_t length)
{
    char *piece = calloc(1, length);

    if (piece == NULL) {
        fail("no host memory");
    }
    return piece;
}

static void copy(void *to, const void *from, size_t length)
{
    if (!gaudi_mpi_copy(to, from, length)) {
        fail("a copy failed, see UCX's message");
    }
}

/* The function that was there, on what may be a card's. */
static void call(const struct replaced *below, const void *const arguments[3],
                 int *count, struct mpi5_datatype **type)
{
    if (below->reduce != NULL) {
        below->reduce(arguments[0], (void *)arguments[2], count, type,
                      below->module);
    } else {
        below->reduce_to(arguments[0], arguments[1], (void *)arguments[2],
                         count, type, below->module);
    }
}

/* Two inputs and the output, which without a second one is an input, too. */
static void compute(const struct replaced *below,
                    const void *const arguments[3], int *count,
                    struct mpi5_datatype **type)
{
    char *pieces[3] = {NULL, NULL, NULL};
    const void *near[3];
    bool is_needed = false;
    struct elements elements;
    size_t done, at, bytes;
    int i, part;

    for (i = 0; i < 3; ++i) {
        is_needed |= gaudi_mpi_is_on_card(arguments[i]);
    }
    if (!is_needed || (*count <= 0)) {
        call(below, arguments, count, type);
        return;
    }
    elements = look_at(*type);
    part     = ((size_t)*count < elements.per_piece) ? *count
                                                     : (int)elements.per_piece;
    for (i = 0; i < 3; ++i) {
        if (gaudi_mpi_is_on_card(arguments[i])) {
            pieces[i] = make_piece(bytes_of(&elements, part));
        }
    }
    for (done = 0; done < (size_t)*count; done += (size_t)part) {
        if ((size_t)*count - done < (size_t)part) {
            part = (int)((size_t)*count - done);
        }
        at    = done * elements.stride;
        bytes = bytes_of(&elements, part);
        for (i = 0; i < 3; ++i) {
            if (pieces[i] == NULL) {
                near[i] = (arguments[i] != NULL)
                              ? (const char *)arguments[i] + at
                              : NULL;
                continue;
            }
            if ((i < 2) || (below->reduce != NULL)) {
                copy(pieces[i], (const char *)arguments[i] + at, bytes);
            }
            near[i] = pieces[i];
        }
        call(below, near, &part, type);
        if (pieces[2] != NULL) {
            copy((char *)arguments[2] + at, pieces[2], bytes);
        }
    }
    for (i = 0; i < 3; ++i) {
        free(pieces[i]);
    }
}

static void reduce(const void *in, void *inout, int *count,
                   struct mpi5_datatype **type, struct mpi5_object *module)
{
    const void *const arguments[3] = {in, NULL, inout};

    compute((const struct replaced *)module, arguments, count, type);
}

static void reduce_to(const void *a, const void *b, void *out, int *count,
                      struct mpi5_datatype **type, struct mpi5_object *module)
{
    const void *const arguments[3] = {a, b, out};

    compute((const struct replaced *)module, arguments, count, type);
}

/* --- taking the place ------------------------------------------------------*/

/* As OBJ_RELEASE does. */
static void drop(struct mpi5_object *object)
{
    void (**destructor)(void *) = object->kind->destructors;

    if (__atomic_sub_fetch(&object->references, 1, __ATOMIC_ACQ_REL) == 0) {
        while (*destructor != NULL) {
            (*destructor++)(object);
        }
        free(object);
    }
}

static void destroy_replaced(void *object)
{
    drop(((struct replaced *)object)->module);
}

static void (*of_replaced[])(void *) = {destroy_replaced, NULL};
static void (*of_module[])(void *)   = {NULL};

static struct mpi5_class replaced_class = {.name        = "ucx_gaudi_replaced",
                                           .destructors = of_replaced,
                                           .size = sizeof(struct replaced)};
static struct mpi5_class module_class   = {.name        = "ucx_gaudi_op",
                                           .destructors = of_module,
                                           .size = sizeof(struct mpi5_op_module)};

/* What has the reference of the operation now; NULL without memory. */
static struct replaced *replace(struct mpi5_object **module)
{
    struct replaced *made = calloc(1, sizeof(*made));

    if (made != NULL) {
        made->super  = (struct mpi5_object){&replaced_class, 1};
        made->module = *module;
        *module      = &made->super;
    }
    return made;
}

/* Each type's function gets its own object instead of the module of all, so
 * the operation is written to here, and the module has nothing to add. */
static int enable(struct mpi5_op_module *module, struct mpi5_op *op)
{
    struct replaced *made;
    int i;

    (void)module;
    for (i = 0; i < MPI5_OP_TYPES; ++i) {
        if ((op->reduce[i] != NULL) &&
            ((made = replace(&op->reduce_modules[i])) != NULL)) {
            made->reduce  = op->reduce[i];
            op->reduce[i] = reduce;
        }
        if ((op->reduce_to[i] != NULL) &&
            ((made = replace(&op->reduce_to_modules[i])) != NULL)) {
            made->reduce_to  = op->reduce_to[i];
            op->reduce_to[i] = reduce_to;
        }
    }
    return MPI5_SUCCESS;
}

/* --- the component ---------------------------------------------------------*/

static int init(bool progress_threads, bool mpi_threads)
{
    const void *caller = __builtin_return_address(0);
    size_t size        = 0;

    (void)progress_threads;
    (void)mpi_threads;
    get_extent =
        (get_extent_t)gaudi_mpi_variable(caller, "PMPI_Type_get_extent", &size);
    get_true_extent = (get_extent_t)gaudi_mpi_variable(
        caller, "PMPI_Type_get_true_extent", &size);
    /* Without the other component memory of cards does not get here. */
    return (gaudi_mpi_knows_cards() && (get_extent != NULL) &&
            (get_true_extent != NULL) &&
            gaudi_mpi_class_has_size(caller, "ompi_op_t_class",
                                     sizeof(struct mpi5_op)) &&
            gaudi_mpi_class_has_size(caller, "ompi_op_base_module_t_class",
                                     sizeof(struct mpi5_op_module)))
               ? MPI5_SUCCESS
               : MPI5_NOT_AVAILABLE;
}

static struct mpi5_op_module *query(struct mpi5_op *op, int *priority)
{
    struct mpi5_op_module *module = calloc(1, sizeof(*module));

    if (module != NULL) {
        module->super  = (struct mpi5_object){&module_class, 1};
        module->enable = enable;
        module->op     = op;
        *priority      = PRIORITY;
    }
    return module;
}

GAUDI_EXPORT extern const struct mpi5_op_component mca_op_gaudi_component;
const struct mpi5_op_component mca_op_gaudi_component = {
    .base = {MPI5_COMPONENT("ompi", "op")}, .init = init, .query = query};
