/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stands for Open MPI 5.0 where its components are loaded: it has the variables
 * by which they know it, and calls them as it does. With OTHER_TABLE it is as
 * later releases are, with OTHER_OBJECTS as a debug build is.
 */
#include "open_mpi_5.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

#ifdef OTHER_TABLE
#define TABLE_MORE 1
#else
#define TABLE_MORE 0
#endif
#ifdef OTHER_OBJECTS
#define OBJECT_MORE 24
#else
#define OBJECT_MORE 0
#endif

SHOWN struct mpi5_accelerator opal_accelerator[1 + TABLE_MORE];
SHOWN struct mpi5_class opal_accelerator_stream_t_class = {
    .name = "opal_accelerator_stream_t",
    .size = sizeof(struct mpi5_handle) + OBJECT_MORE};
SHOWN struct mpi5_class ompi_op_t_class = {
    .name = "ompi_op_t", .size = sizeof(struct mpi5_op) + OBJECT_MORE};
SHOWN struct mpi5_class ompi_op_base_module_t_class = {
    .name = "ompi_op_base_module_t",
    .size = sizeof(struct mpi5_op_module) + OBJECT_MORE};

SHOWN int PMPI_Type_get_extent(const struct type_of_test *type,
                               ptrdiff_t *lower, ptrdiff_t *extent)
{
    *lower  = 0;
    *extent = type->stride;
    return 0;
}

SHOWN int PMPI_Type_get_true_extent(const struct type_of_test *type,
                                    ptrdiff_t *lower, ptrdiff_t *extent)
{
    *lower  = 0;
    *extent = type->size;
    return 0;
}

static volatile int started;

/* As mca_base_component_repository_open() does. */
static void *open_component(const char *folder, const char *framework)
{
    char name[64], file[4096];
    const struct mpi5_component *found;
    void *library;

    snprintf(file, sizeof(file), "%s/mca_%s_gaudi.so", folder, framework);
    snprintf(name, sizeof(name), "mca_%s_gaudi_component", framework);
    library = dlopen(file, RTLD_LAZY);
    found   = (library != NULL) ? dlsym(library, name) : NULL;
    if ((found == NULL) || (found->mca_major != 2) || (found->mca_minor != 1) ||
        (strcmp(found->framework, framework) != 0) ||
        (strcmp(found->name, "gaudi") != 0) || (found->framework_major != 1) ||
        (found->framework_minor != 0) || (found->framework_release != 0)) {
        fprintf(stderr, "%s: no component: %s\n", file, dlerror());
        exit(1);
    }
    return (void *)found;
}

SHOWN struct mpi5_accelerator *start_accelerator(const char *folder)
{
    const struct mpi5_accelerator_component *component =
        open_component(folder, "accelerator");
    struct mpi5_accelerator *module = component->init();

    ++started; /* and so no tail call: who calls is looked at */
    return module;
}

SHOWN int start_operations(const char *folder, struct mpi5_op *op)
{
    const struct mpi5_op_component *component = open_component(folder, "op");
    struct mpi5_op_module *module;
    int priority = -1;
    int status   = component->init(0, 1);

    if (status != MPI5_SUCCESS) {
        return status;
    }
    module = component->query(op, &priority);
    if ((module == NULL) || (priority != 100)) {
        return MPI5_ERROR;
    }
    status = module->enable(module, op);
    end_object(&module->super);
    return status;
}

SHOWN void end_object(struct mpi5_object *object)
{
    void (**destructor)(void *) = object->kind->destructors;

    if (--object->references == 0) {
        for (; *destructor != NULL; ++destructor) {
            (*destructor)(object);
        }
        free(object);
    }
}
