/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of UCX that the loader wraps, where it comes before UCX in the
 * order of look-up: preloaded, or linked with the program.
 *
 * A program that loads UCX late (Open MPI does) gets the module at the first
 * call of one that comes before UCX reads its configuration and lists its
 * components. One comes earlier still, since a program may look up
 * ucp_config_read in libucp itself (dlsym). Lists of transports that a program
 * sets itself get the names that UCX knows. Three more are wrapped for what is
 * to be said when there is no card, or no transport that they need.
 *
 * ucp_init_version is not among them: UCX tells by its address which file UCP
 * was loaded from, and what it calls is wrapped.
 *
 * A UCX that was opened with RTLD_DEEPBIND calls none of them. It gets the
 * module when the start code of its libucp calls __gmon_start__.
 */
#define _GNU_SOURCE
#include "loader/loader.h"

#include "util/transport_list.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Let the module say why there is no card; NULL, or parameters of an
 * allocation, which was perhaps not for it. */
static void explain_refusal(const void *params)
{
    typedef void (*function_t)(const void *);

    const function_t explain =
        (function_t)gaudi_module_function("uct_gaudi_explain_refusal");

    if (explain != NULL) {
        explain(params);
    }
}

/* The file that was loaded last of those whose names begin as the name of a
 * library of UCX does, up to its first dot: packagers put a hash there. */
struct file {
    const char *library;
    char path[PATH_MAX];
};

static int keep_if_named_so(struct dl_phdr_info *object, size_t size, void *arg)
{
    struct file *found = arg;
    const char *slash  = strrchr(object->dlpi_name, '/');
    const char *name   = (slash == NULL) ? object->dlpi_name : slash + 1;

    (void)size;
    if (!strncmp(name, found->library, strcspn(found->library, "."))) {
        snprintf(found->path, sizeof(found->path), "%s", object->dlpi_name);
    }
    return 0;
}

/* A function as the dynamic linker finds it from a file that is loaded. */
static void *function_in(const char *file, const char *name)
{
    void *handle   = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    void *function = NULL;

    if (handle != NULL) {
        function = dlsym(handle, name);
        dlclose(handle);
    }
    return function;
}

static int is_of_ucx(const void *function)
{
    Dl_info info;

    return (dladdr(function, &info) != 0) &&
           (strstr(info.dli_fname, "/libuc") != NULL);
}

/* The one of the caller's own UCX: the process may have several, or one of
 * other names. A constructor that ends with the call returns to the dynamic
 * linker, and is of the UCX that is just being loaded. NULL: the caller is the
 * program, or not known. */
static void *function_of(const void *caller, const char *library,
                         const char *name)
{
    struct link_map *map = NULL;
    struct file last     = {library, ""};
    Dl_info info;
    void *function;

    if ((dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) == 0) ||
        (map == NULL) || (map->l_name[0] == '\0')) {
        return NULL;
    }
    function = function_in(map->l_name, name);
    if (function == NULL) {
        (void)dl_iterate_phdr(keep_if_named_so, &last);
        function = (last.path[0] == '\0') ? NULL : function_in(last.path, name);
    }
    return function;
}

/* The wrapped function itself: the next one in the order of look-up, which may
 * be somebody else's wrapper, but not of another UCX than the caller's. */
static void *find_next(const void *caller, const void *wrapper,
                       const char *library, const char *name)
{
    void *own      = function_of(caller, library, name);
    void *function = dlsym(RTLD_NEXT, name);

    if ((own != NULL) && (own != wrapper) &&
        ((function == NULL) || is_of_ucx(function))) {
        function = own;
    }
    return (function != NULL) ? function : function_in(library, name);
}

/* The same; NULL after a line that tells. */
static void *next_function(const void *caller, const void *wrapper,
                           const char *library, const char *name)
{
    void *function = find_next(caller, wrapper, library, name);

    if (function == NULL) {
        gaudi_say("%s is not to be found in %s", name, library);
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
        NEXT("libucm.so.0", ucm_set_global_opts);

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

/* What is written to a stream, with a zero behind it. Not by open_memstream:
 * what libc allocates we must not free (gaudi_next_module). */
struct text {
    char *start;
    size_t size;
};

static ssize_t append(void *cookie, const char *bytes, size_t size)
{
    struct text *text  = cookie;
    char *const longer = realloc(text->start, text->size + size + 1);

    if (longer == NULL) {
        return 0;
    }
    memcpy(longer + text->size, bytes, size);
    text->start = longer;
    text->size += size;
    longer[text->size] = '\0';
    return (ssize_t)size;
}

/* The list of transports of a configuration, to be freed; NULL when it is not
 * to be had. Only UCX knows where it came from. */
static char *transports_of(const void *caller, const void *config)
{
    typedef void (*function_t)(const void *, FILE *, const char *, int);
    enum { PRINT_CONFIG = 1 }; /* as ucs/config/types.h has it */
    static const char variable[] = "\nUCX_TLS=";

    const function_t print =
        (function_t)find_next(caller, NULL, "libucp.so.0", "ucp_config_print");
    struct text text = {NULL, 0};
    FILE *stream =
        (print == NULL)
            ? NULL
            : fopencookie(&text, "w", (cookie_io_functions_t){.write = append});
    char *found = NULL;

    if (stream == NULL) {
        return NULL;
    }
    fputc('\n', stream);
    print(config, stream, "", PRINT_CONFIG);
    if (fclose(stream) == 0) {
        found = strstr(text.start, variable);
    }
    if (found == NULL) {
        free(text.start);
        return NULL;
    }
    found += strlen(variable);
    found[strcspn(found, "\n")] = '\0';
    return memmove(text.start, found, strlen(found) + 1);
}

GAUDI_EXPORT status_t ucp_config_modify(void *config, const char *name,
                                        const char *value)
{
    char *tls = !strcmp(name, "TLS") ? gaudi_transport_names(value) : NULL;
    const status_t status = CALL_NEXT("libucp.so.0", ucp_config_modify, config,
                                      name, (tls != NULL) ? tls : value);

    free(tls);
    return status;
}

/* What variables with the program's own prefix say, and files. */
static void rewrite_transports(const void *caller, void *config)
{
    const __typeof__(&ucp_config_modify) modify =
        find_next(caller, (const void *)ucp_config_modify, "libucp.so.0",
                  "ucp_config_modify");
    char *list = transports_of(caller, config);
    char *tls  = gaudi_transport_names(list);

    if ((tls != NULL) && (modify != NULL)) {
        (void)modify(config, "TLS", tls);
    }
    free(tls);
    free(list);
}

GAUDI_EXPORT status_t ucp_config_read(const char *env_prefix,
                                      const char *filename, void **config_p)
{
    status_t status;

    gaudi_load_module(__builtin_return_address(0));
    status = CALL_NEXT("libucp.so.0", ucp_config_read, env_prefix, filename,
                       config_p);
    if (status == 0) {
        rewrite_transports(__builtin_return_address(0), *config_p);
    }
    return status;
}

GAUDI_EXPORT status_t uct_query_components(void **components_p,
                                           unsigned *num_components_p)
{
    status_t status;

    gaudi_load_module(__builtin_return_address(0));
    status = CALL_NEXT("libuct.so.0", uct_query_components, components_p,
                       num_components_p);
    gaudi_tell_of_another_ucx(__builtin_return_address(0));
    return status;
}

/* Called for each allocation, so what is found is kept for the first places
 * that call it, if it is in the UCX of the module, which keeps that. Finding
 * it takes dlopen, for which UCM notes and forgets what all files need, and
 * UCP's cache of UCX 1.17 to 1.20 notes each page that this gives back
 * (ucs_rcache_unmapped_callback). */
static void *next_mem_alloc(const void *caller, const void *wrapper)
{
    enum { PLACES = 8 };
    static struct {
        const void *caller;
        void *next;
    } known[PLACES];
    static unsigned taken;

    void *next;
    unsigned i;

    for (i = 0; i < PLACES; ++i) {
        if (__atomic_load_n(&known[i].caller, __ATOMIC_ACQUIRE) == caller) {
            return known[i].next;
        }
    }
    next = next_function(caller, wrapper, "libuct.so.0", "uct_mem_alloc");
    if ((next != NULL) &&
        (__atomic_load_n(&taken, __ATOMIC_RELAXED) < PLACES) &&
        (gaudi_module_function("uct_mem_alloc") == next)) {
        i = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
        if (i < PLACES) {
            known[i].next = next;
            __atomic_store_n(&known[i].caller, caller, __ATOMIC_RELEASE);
        }
    }
    return next;
}

GAUDI_EXPORT status_t uct_mem_alloc(size_t length, const int *methods,
                                    unsigned num_methods, const void *params,
                                    void *memory)
{
    const __typeof__(&uct_mem_alloc) next = next_mem_alloc(
        __builtin_return_address(0), (const void *)uct_mem_alloc);
    const status_t status =
        (next == NULL) ? (status_t)STATUS_UNSUPPORTED
                       : next(length, methods, num_methods, params, memory);

    if (status != 0) {
        explain_refusal(params);
    }
    return status;
}

/* Say in a line, once, that connections to a listener fail, if UCX_TLS has no
 * transport for them. */
static void warn_of_listener(void)
{
    static int said;
    const char *tls = secure_getenv("UCX_TLS");

    if ((tls != NULL) && !gaudi_read_transports(tls).network &&
        !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) {
        gaudi_say("this program listens for connections by socket address, "
                  "which UCX refuses over UCX_TLS=%s alone; add tcp",
                  tls);
    }
}

GAUDI_EXPORT status_t ucp_listener_create(void *worker, const void *params,
                                          void **listener_p)
{
    warn_of_listener();
    return CALL_NEXT("libucp.so.0", ucp_listener_create, worker, params,
                     listener_p);
}

GAUDI_EXPORT status_t uct_md_open(void *component, const char *name,
                                  const void *config, void **md_p)
{
    const status_t status =
        CALL_NEXT("libuct.so.0", uct_md_open, component, name, config, md_p);

    if ((name != NULL) && !strcmp(name, "gaudi_copy") &&
        /* which opens every domain that there is, and so asks for nothing */
        !gaudi_is_ucp(__builtin_return_address(0))) {
        explain_refusal(NULL);
    }
    return status;
}
