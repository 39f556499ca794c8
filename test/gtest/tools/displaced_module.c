/* SPDX-License-Identifier: BSD-3-Clause */
/* A UCX module that tells what UCX's loader does with it. */
#include <stdio.h>
#include <ucs/type/status.h>

__attribute__((constructor)) static void displaced_constructor(void)
{
    printf("displaced module: loaded\n");
}

/* The loader calls this. */
__attribute__((visibility("default"))) ucs_status_t ucs_module_global_init(void)
{
    printf("displaced module: initialized\n");
    return UCS_OK;
}
