/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open MPI 5.0 as its components see it; see open_mpi_5.c.
 */
#ifndef OPEN_MPI_5_H
#define OPEN_MPI_5_H

#include "openmpi/abi.h"

/* What a datatype's handle of it points to. */
struct type_of_test {
    ptrdiff_t stride, size;
};

/* The functions of the component in a folder; NULL when it does not want to. */
struct mpi5_accelerator *start_accelerator(const char *folder);

/* Have the component in a folder take its place in an operation. */
int start_operations(const char *folder, struct mpi5_op *op);

/* As OBJ_RELEASE does. */
void end_object(struct mpi5_object *object);

#endif
