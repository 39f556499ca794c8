#define _GNU_SOURCE
#include "loader/loader.h"

#include "loader/gdr_module.h"
#include "loader/installation.h"
#include "loader/report.h"
#include "loader/running_ucx.h"
#include "loader/slot.h"
#include "loader/tls_alias.h"

#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

/* The module, when it is loaded. */
static void *module;

/* Declared by no header: UCX looks it up by name. */
GAUDI_EXPORT signed char ucs_module_global_init(void);

/* The module for the running UCX; NULL after a line that tells why not. */
static void *open_module(void *libucs)
{
    struct gaudi_ucx ucx;
    char path[PATH_MAX];
    void *handle;

    if (!gaudi_find_ucx(libucs, &ucx) ||
        !gaudi_find_module(&ucx, path, sizeof(path))) {
        return NULL;
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        gaudi_say("the module for UCX %u.%u cannot be loaded: %s", ucx.major,
                  ucx.minor, dlerror());
    }
    return handle;
}

void gaudi_load_module(void)
{
    static int tried;
    void *libucs;

    if (__atomic_load_n(&tried, __ATOMIC_ACQUIRE)) {
        return;
    }
    libucs = dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (libucs == NULL) {
        return;
    }
    if (!__atomic_exchange_n(&tried, 1, __ATOMIC_ACQ_REL)) {
        __atomic_store_n(&module, open_module(libucs), __ATOMIC_RELEASE);
    }
    dlclose(libucs);
}

void *gaudi_module_function(const char *name)
{
    void *handle = __atomic_load_n(&module, __ATOMIC_ACQUIRE);

    return (handle == NULL) ? NULL : dlsym(handle, name);
}

/* Whether the program has this file from its start, preloaded or linked. */
static int is_part_of_program(void)
{
    void *program = dlopen(NULL, RTLD_LAZY);

    return (program != NULL) && (dlsym(program, "ucs_module_global_init") ==
                                 (void *)ucs_module_global_init);
}

/*
 * UCX does not know our names. From the program's start on they are replaced in
 * UCX_TLS. When UCX itself loads this file, it has read the variable.
 */
static void rewrite_tls(void)
{
    const char *tls = getenv("UCX_TLS");
    char *rewritten =
        (tls == NULL) ? NULL : gaudi_rewrite_tls(tls, gaudi_has_gdr_module());

    if ((rewritten != NULL) && is_part_of_program()) {
        setenv("UCX_TLS", rewritten, 1);
    }
    free(rewritten);
}

static void warn_of_tls(void)
{
    const char *tls = getenv("UCX_TLS");
    char *rewritten =
        (tls == NULL) ? NULL : gaudi_rewrite_tls(tls, gaudi_has_gdr_module());

    if (rewritten != NULL) {
        gaudi_say("UCX, which has loaded the Gaudi transports by itself, does "
                  "not know all names in UCX_TLS=%s; write UCX_TLS=%s",
                  tls, rewritten);
    }
    free(rewritten);
}

__attribute__((constructor)) static void loader_init(void)
{
    rewrite_tls();
    gaudi_load_module();
}

/*
 * Called by UCX's loader of modules, and only by it, under a lock of its own:
 * nobody else opens this file as a module of UCX. It never fails, since UCX
 * would unmap what does. ucs_status_t is a packed enumeration.
 */
GAUDI_EXPORT signed char ucs_module_global_init(void)
{
    static int called;

    if (!called) {
        called = 1;
        warn_of_tls();
        gaudi_load_module();
        gaudi_load_displaced_modules();
    }
    return 0;
}
