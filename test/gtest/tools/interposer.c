/* SPDX-License-Identifier: BSD-3-Clause */
/* Somebody else's wrappers: of a function that the loader wraps, too, and of
 * one that it calls. */
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

__attribute__((visibility("default"))) void *dlopen(const char *file, int flags)
{
    typedef void *(*function_t)(const char *, int);

    puts("interposer: a file is opened");
    return ((function_t)dlsym(RTLD_NEXT, "dlopen"))(file, flags);
}
