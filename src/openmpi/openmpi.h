/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The components for Open MPI 5.0, by which it knows memory of cards. The
 * loader has them, under more of its names:
 * ucx-gaudi/openmpi/mca_accelerator_gaudi.so (what is a card's, and copies) and
 * mca_op_gaudi.so (operations of reductions). Open MPI finds them by its
 * parameter mca_base_component_path.
 *
 * They stand on ucx_gaudi.h, as any program. Any thread may be in here, as
 * MPI's level of threads allows.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* --- accelerator.c ---------------------------------------------------------*/

/* Whether Open MPI asks us which memory is a card's. */
bool gaudi_mpi_knows_cards(void);

bool gaudi_mpi_is_on_card(const void *address);

/* Copy between any two memories that do not overlap. UCX's log tells why not.
 */
bool gaudi_mpi_copy(void *to, const void *from, size_t length);

/* --- layout.c --------------------------------------------------------------*/

/* A variable of the library that has called, or of those that it needs; NULL
 * without it. */
void *gaudi_mpi_variable(const void *return_address, const char *name,
                         size_t *size_p);

/* Whether objects of these classes have so many bytes there. */
bool gaudi_mpi_class_has_size(const void *return_address, const char *name,
                              size_t size);
