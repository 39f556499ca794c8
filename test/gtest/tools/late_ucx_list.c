/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes late_ucx a program that names UCX's list of memory types, and so has it
 * itself, as long as it is in the libucs that it was linked with. */
#include <stddef.h>

extern const char *ucs_memory_type_names[];

__attribute__((visibility("default"))) const char *first_memory_type(void)
{
    return ucs_memory_type_names[0];
}
