/* SPDX-License-Identifier: BSD-3-Clause */
/* The libucm of renamed_ucs.c. */
#include <stdio.h>

__attribute__((visibility("default"))) void
ucm_set_global_opts(const void *options)
{
    printf("options %d are set\n", *(const int *)options);
}
