/* SPDX-License-Identifier: BSD-3-Clause */
/* Somebody else's wrapper of a function that the loader wraps, too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

__attribute__((visibility("default"))) signed char
uct_query_components(void **components_p, unsigned *num_components_p)
{
    typedef signed char (*function_t)(void **, unsigned *);

    puts("interposer: called");
    return ((function_t)dlsym(RTLD_NEXT, "uct_query_components"))(
        components_p, num_components_p);
}
