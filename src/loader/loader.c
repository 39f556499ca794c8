#define _GNU_SOURCE
#include "loader/loader.h"

#include "util/library_file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The module, when it is loaded. */
static void *module;

/* Declared by no header: UCX looks it up by name. */
GAUDI_EXPORT status_t ucs_module_global_init(void);

/* A module of another installation that the process has for this release: what
 * it has registered with UCX must not be registered again. */
static void *find_loaded_module(const struct gaudi_ucx *ucx, const char *path)
{
    char soname[64];
    char own[PATH_MAX];
    char other[PATH_MAX];
    void *handle;

    snprintf(soname, sizeof(soname), "libuct_hlthunk-%u.%u.so.0", ucx->major,
             ucx->minor);
    handle = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
    if ((handle != NULL) && (realpath(path, own) != NULL) &&
        ((realpath(gaudi_file_of(handle), other) == NULL) ||
         (strcmp(own, other) != 0))) {
        gaudi_complain("%s is in use already, so %s is not loaded; use one "
                       "installation of ucx-gaudi",
                       gaudi_file_of(handle), own);
    }
    return handle;
}

/* The module for a UCX; NULL after a line that tells why not. */
static void *open_module_for(const struct gaudi_ucx *ucx)
{
    char path[PATH_MAX];
    char broken[PATH_MAX + 100];
    const char *why = broken;
    void *handle;

    if (!gaudi_find_module(ucx, path, sizeof(path))) {
        return NULL;
    }
    handle = find_loaded_module(ucx, path);
    if ((handle == NULL) && gaudi_may_be_loaded(path, broken, sizeof(broken))) {
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        why    = (handle == NULL) ? dlerror() : NULL;
    }
    if (handle == NULL) {
        gaudi_complain("the module for UCX %u.%u.%u (%s) cannot be loaded: %s; "
                       "install or build ucx-gaudi again",
                       ucx->major, ucx->minor, ucx->patch, ucx->libucp, why);
    }
    return handle;
}

static void *open_module(void *libucs)
{
    struct gaudi_ucx ucx;
    void *handle;

    if (!gaudi_find_ucx(libucs, &ucx)) {
        return NULL;
    }
    handle = open_module_for(&ucx);
    /* Not before: the module is to get the libuct that came with it. */
    dlclose(ucx.handle);
    return handle;
}

/*
 * There is no lock here but the dynamic linker's own one. A second lock could
 * not be ordered with that: some threads get here inside dlopen, from a
 * constructor, others call dlopen from here. So every thread that comes before
 * the module is open does the same steps. The last one is a dlopen of the same
 * file, which runs its constructors once and lets other threads wait for them.
 */
void gaudi_load_module(void)
{
    static int done;
    static __thread int is_inside;
    void *libucs;
    void *handle;

    /* Constructors of the module and of libucp may come back. */
    if (is_inside || __atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        return;
    }
    libucs = dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (libucs == NULL) {
        return;
    }
    is_inside = 1;
    handle    = open_module(libucs);
    if (handle != NULL) {
        __atomic_store_n(&module, handle, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    is_inside = 0;
    dlclose(libucs);
}

void *gaudi_module_function(const char *name)
{
    void *handle = __atomic_load_n(&module, __ATOMIC_ACQUIRE);

    return (handle == NULL) ? NULL : dlsym(handle, name);
}

__attribute__((constructor)) static void loader_init(void)
{
    (void)gaudi_own_file();
    gaudi_rewrite_tls_setting();
    gaudi_load_module();
}

/*
 * Called by UCX's loader of modules, and only by it, under a lock of its own:
 * nobody else opens this file as a module of UCX. It never fails, since UCX
 * would unmap what does.
 */
GAUDI_EXPORT status_t ucs_module_global_init(void)
{
    static int called;

    if (!called) {
        called = 1;
        gaudi_warn_of_tls_setting();
        gaudi_load_module();
        gaudi_load_displaced_modules();
    }
    return 0;
}
