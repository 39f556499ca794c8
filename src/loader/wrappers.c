/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of UCX that the loader wraps, where it comes before UCX in the
 * order of look-up: preloaded, or linked with the program.
 *
 * A program that loads UCX late (Open MPI does) gets the module at the first
 * call of one that comes before UCX reads its configuration and lists its
 * components. One comes earlier still, since a program may look up
 * ucp_config_read in libucp itself (dlsym).
 *
 * ucp_init_version is not among them: UCX tells by its address which file UCP
 * was loaded from, and what it calls is wrapped.
 *
 * A UCX that was opened with RTLD_DEEPBIND calls none of them. It gets the
 * module when the start code of its libucp calls __gmon_start__.
 */
#define _GNU_SOURCE
#include "loader/loader.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

static int is_of_ucx(const void *function)
{
    Dl_info info;

    return (dladdr(function, &info) != 0) &&
           (strstr(info.dli_fname, "/libuc") != NULL);
}

/* The wrapped function itself: the next one in the order of look-up, which may
 * be somebody else's wrapper, but not of another UCX than the caller's. NULL
 * after a line that tells. */
static void *next_function(const void *caller, const void *wrapper,
                           const char *library, const char *name)
{
    void *own      = gaudi_function_of(caller, library, name);
    void *function = dlsym(RTLD_NEXT, name);

    if ((own != NULL) && (own != wrapper) &&
        ((function == NULL) || is_of_ucx(function))) {
        function = own;
    }
    if (function == NULL) {
        function = gaudi_function_of(NULL, library, name);
    }
    if (function == NULL) {
        gaudi_say("%s is not to be found in %s (put one whole UCX into "
                  "LD_LIBRARY_PATH)",
                  name, library);
    }
    return function;
}

/* That function, from inside its wrapper; whoever calls it is told that there
 * is none. */
#define NEXT(_library, _function)                                              \
    ((__typeof__(&_function))next_function(__builtin_return_address(0),        \
                                           (const void *)_function, _library,  \
                                           #_function))
#define CALL_NEXT(_library, _function, ...)                                    \
    ({                                                                         \
        const __typeof__(&_function) next = NEXT(_library, _function);         \
        (next == NULL) ? (status_t)STATUS_UNSUPPORTED : next(__VA_ARGS__);     \
    })

/* As ucs/type/status.h has it. Only the calling convention of the wrapped
 * functions matters here; their types are those of ucp.h and uct.h. */
enum { STATUS_UNSUPPORTED = -22 };

/* How many files had been loaded when the libucs that was started last called
 * what is wrapped; 0: it calls other functions. Libraries are started under a
 * lock of the dynamic linker. */
static unsigned long long wrapped_at;

static int get_loads(struct dl_phdr_info *object, size_t size, void *loads_p)
{
    (void)size;
    *(unsigned long long *)loads_p = object->dlpi_adds;
    return 1;
}

static unsigned long long count_loads(void)
{
    unsigned long long loads = 0;

    (void)dl_iterate_phdr(get_loads, &loads);
    return loads;
}

/* Called by the constructor of libucs, in which no module can be loaded yet. */
GAUDI_EXPORT void ucm_set_global_opts(const void *options)
{
    const __typeof__(&ucm_set_global_opts) next =
        NEXT("libucm", ucm_set_global_opts);

    wrapped_at = count_loads();
    gaudi_rewrite_tls_setting();
    if (next != NULL) {
        next(options);
    }
}

/*
 * The start code of each library (glibc's _init) calls __gmon_start__ if there
 * is one. No library has it, so RTLD_DEEPBIND, which searches UCX's libraries
 * first, finds this one; a program that gprof profiles calls its own. What
 * libucp needs was started before. A libucp that is opened later than its
 * libucs may have another mode, so the module is loaded at once then, too. A
 * sanitizer's runtime may not have been started.
 */
GAUDI_EXPORT void gaudi_library_starts(void) __asm__("__gmon_start__");

__attribute__((no_sanitize("address"))) void gaudi_library_starts(void)
{
    const void *caller = __builtin_return_address(0);
    const char *name;
    Dl_info info;

    if (dladdr(caller, &info) == 0) {
        return;
    }
    name = info.dli_fname + gaudi_folder_length(info.dli_fname);
    if (!strncmp(name, "libucs", strlen("libucs"))) {
        wrapped_at = 0;
    } else if (!strncmp(name, "libucp", strlen("libucp")) &&
               (wrapped_at != count_loads())) {
        gaudi_rewrite_tls_setting();
        gaudi_load_module(caller);
        gaudi_tell_of_another_ucx(caller);
    }
}

GAUDI_EXPORT status_t ucp_config_read(const char *env_prefix,
                                      const char *filename, void **config_p)
{
    gaudi_load_module(__builtin_return_address(0));
    /* The program may have set it since UCX was loaded. */
    gaudi_rewrite_tls_setting();
    return CALL_NEXT("libucp", ucp_config_read, env_prefix, filename, config_p);
}

GAUDI_EXPORT status_t uct_query_components(void **components_p,
                                           unsigned *num_components_p)
{
    status_t status;

    gaudi_load_module(__builtin_return_address(0));
    status = CALL_NEXT("libuct", uct_query_components, components_p,
                       num_components_p);
    gaudi_tell_of_another_ucx(__builtin_return_address(0));
    return status;
}
