/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What Open MPI 5.0 and a component of it have in common: the layout of
 * structures in opal/mca/mca.h, opal/class/opal_object.h,
 * opal/mca/accelerator/accelerator.h, ompi/mca/op/op.h and ompi/op/op.h, which
 * are the same in 5.0.0 to 5.0.10. So no header of Open MPI is needed to build
 * the components, and none of its libraries to link them.
 *
 * With other layouts (other releases, debug builds) they stay out of the way:
 * openmpi.h looks. test/static/headers/compare_openmpi.c compares with the
 * headers of an Open MPI that is installed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- objects ---------------------------------------------------------------*/

struct mpi5_class { /* opal_class_t */
    const char *name;
    struct mpi5_class *parent;
    void (*construct)(void *object);
    void (*destruct)(void *object);
    int initialized;
    int depth;
    void (**constructors)(void *object);
    void (**destructors)(void *object); /* ends with NULL */
    size_t size;
};

/* Whoever drops the last reference runs the destructors, and calls free(). */
struct mpi5_object { /* opal_object_t */
    struct mpi5_class *kind;
    int32_t references;
};

/* --- components ------------------------------------------------------------*/

enum mpi5_status { /* opal/constants.h */
                   MPI5_SUCCESS         = 0,
                   MPI5_ERROR           = -1,
                   MPI5_NO_RESOURCE     = -2,
                   MPI5_NOT_IMPLEMENTED = -7,
                   MPI5_NOT_AVAILABLE   = -16
};

struct mpi5_component { /* mca_base_component_2_1_0_t */
    int mca_major, mca_minor, mca_release;
    char project[16];
    int project_major, project_minor, project_release;
    char framework[32];
    int framework_major, framework_minor, framework_release;
    char name[64];
    int major, minor, release;
    int (*open)(void);
    int (*close)(void);
    int (*query)(void **module, int *priority);
    int (*register_parameters)(void);
    int32_t flags;
    char reserved[28];
};

struct mpi5_component_data { /* mca_base_component_data_2_0_0_t */
    uint32_t parameters;
    char reserved[32];
};

/* What a component of version 1.0.0 of a framework starts with. */
#define MPI5_COMPONENT(_project, _framework)                                   \
    .mca_major = 2, .mca_minor = 1, .mca_release = 0, .project = _project,     \
    .project_major = 5, .framework = _framework, .framework_major = 1,         \
    .name = "gaudi", .major = GAUDI_VERSION_MAJOR,                             \
    .minor = GAUDI_VERSION_MINOR, .release = GAUDI_VERSION_PATCH

/* --- framework accelerator -------------------------------------------------*/

#define MPI5_NO_CARD (-1) /* MCA_ACCELERATOR_NO_DEVICE_ID */

/* opal_accelerator_stream_t and opal_accelerator_event_t */
struct mpi5_handle {
    struct mpi5_object super;
    void *own;
};

struct mpi5_pci_address { /* opal_accelerator_pci_attr_t */
    uint16_t domain;
    uint8_t bus, device, function;
};

/* opal_accelerator_base_module_t. Cards are numbers, or MPI5_NO_CARD. A kind of
 * copy (opal_accelerator_transfer_type_t) says which side is a card's. */
struct mpi5_accelerator {
    int (*check_address)(const void *address, int *card, uint64_t *flags);
    int (*create_stream)(int card, struct mpi5_handle **stream);
    int (*create_event)(int card, struct mpi5_handle **event);
    int (*record_event)(int card, struct mpi5_handle *event,
                        struct mpi5_handle *stream);
    int (*query_event)(int card, struct mpi5_handle *event);
    int (*copy_async)(int to_card, int from_card, void *to, const void *from,
                      size_t length, struct mpi5_handle *stream, int kind);
    int (*copy)(int to_card, int from_card, void *to, const void *from,
                size_t length, int kind);
    int (*move)(int to_card, int from_card, void *to, const void *from,
                size_t length, int kind);
    int (*allocate)(int card, void **address, size_t length);
    int (*release)(int card, void *address);
    int (*get_range)(int card, const void *address, void **base,
                     size_t *length);
    int (*register_host)(int card, void *address, size_t length);
    int (*unregister_host)(int card, void *address);
    int (*get_card)(int *card);
    int (*get_pci_address)(int card, struct mpi5_pci_address *address);
    int (*can_access_peer)(int *access, int card, int peer);
    int (*get_buffer_id)(int card, const void *address, uint64_t *id);
};

struct mpi5_accelerator_component { /* opal_accelerator_base_component_t */
    struct mpi5_component base;
    struct mpi5_component_data data;
    struct mpi5_accelerator *(*init)(void);
    void (*finalize)(struct mpi5_accelerator *module);
};

/* --- framework op ----------------------------------------------------------*/

#define MPI5_OP_TYPES 43 /* OMPI_OP_BASE_TYPE_MAX */

struct mpi5_datatype; /* what a handle of MPI points to */

/* in OP inout -> inout */
typedef void (*mpi5_reduce_t)(const void *in, void *inout, int *count,
                              struct mpi5_datatype **type,
                              struct mpi5_object *module);
/* a OP b -> out */
typedef void (*mpi5_reduce_to_t)(const void *a, const void *b, void *out,
                                 int *count, struct mpi5_datatype **type,
                                 struct mpi5_object *module);

struct mpi5_op { /* ompi_op_t, of an operation that MPI defines */
    struct mpi5_object super;
    char name[64];
    int type;
    uint32_t flags;
    int fortran_index;
    mpi5_reduce_t reduce[MPI5_OP_TYPES];
    struct mpi5_object *reduce_modules[MPI5_OP_TYPES];
    mpi5_reduce_to_t reduce_to[MPI5_OP_TYPES];
    struct mpi5_object *reduce_to_modules[MPI5_OP_TYPES];
};

struct mpi5_op_module { /* ompi_op_base_module_1_0_0_t */
    struct mpi5_object super;
    int (*enable)(struct mpi5_op_module *module, struct mpi5_op *op);
    struct mpi5_op *op;
    mpi5_reduce_t reduce[MPI5_OP_TYPES];
    mpi5_reduce_to_t reduce_to[MPI5_OP_TYPES];
};

struct mpi5_op_component { /* ompi_op_base_component_1_0_0_t */
    struct mpi5_component base;
    struct mpi5_component_data data;
    int (*init)(bool progress_threads, bool mpi_threads);
    struct mpi5_op_module *(*query)(struct mpi5_op *op, int *priority);
};
