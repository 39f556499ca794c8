/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loader/loader.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which UCX this process has. */
struct ucx {
    unsigned major;
    unsigned minor;
    unsigned patch;
    char libucp[PATH_MAX]; /* the file that told */
    void *handle;          /* of it: the caller's to close */
};

/* Modules can be built for this release of 1 on. */
enum { oldest_minor = 13 };

/* The module, when it is loaded. */
static void *module;

/* Declared by no header: UCX looks it up by name. */
GAUDI_EXPORT status_t ucs_module_global_init(void);

/* --- files ----------------------------------------------------------------*/

const char *gaudi_own_file(void)
{
    static char path[PATH_MAX];
    static int is_known;
    Dl_info self;

    if (!is_known) {
        if ((dladdr(gaudi_module_name, &self) == 0) ||
            (realpath(self.dli_fname, path) == NULL)) {
            path[0] = '\0';
        }
        is_known = 1;
    }
    return path;
}

/* --- the UCX of the process -----------------------------------------------*/

/*
 * Ask the libucp of this process for its version, or the one beside libucs in a
 * program that has none. Another one is never opened beside the first: their
 * lists of variables would get mixed up. Returns 0 after a line that tells why.
 */
static int find_ucx(void *libucs, struct ucx *found)
{
    typedef void (*version_t)(unsigned *, unsigned *, unsigned *);

    const char *file      = gaudi_file_of(libucs);
    version_t get_version = NULL;

    found->handle = gaudi_open_libucp(libucs);
    if (found->handle != NULL) {
        get_version = (version_t)dlsym(found->handle, "ucp_get_version");
    }
    if (get_version == NULL) {
        gaudi_complain("the version of UCX is not known, so no module is "
                       "loaded: %s (take %s and libucp from one package)",
                       dlerror(), file);
        if (found->handle != NULL) {
            dlclose(found->handle);
        }
        return 0;
    }
    snprintf(found->libucp, sizeof(found->libucp), "%s",
             gaudi_file_of(found->handle));
    get_version(&found->major, &found->minor, &found->patch);
    return 1;
}

/* --- its module -----------------------------------------------------------*/

/* The releases that have a module in a folder: "1.13, 1.18", or "none". */
static void list_modules(const char *folder, char *list, size_t size)
{
    char name[NAME_MAX + 1] = "";
    size_t used             = 0;

    snprintf(list, size, "none");
    while ((used < size) && gaudi_next_module(folder, name)) {
        if ((name[0] >= '0') && (name[0] <= '9')) { /* not plugins */
            used += (size_t)snprintf(list + used, size - used, "%s%s",
                                     (used == 0) ? "" : ", ", name);
        }
    }
}

static void say_that_none_fits(const struct ucx *ucx, const char *folder,
                               const char *why)
{
    char installed[256];

    if ((ucx->major == 1) && (ucx->minor < oldest_minor)) {
        gaudi_complain("UCX %u.%u.%u (%s) is too old for the Gaudi transports "
                       "(use UCX 1.%u or newer)",
                       ucx->major, ucx->minor, ucx->patch, ucx->libucp,
                       oldest_minor);
        return;
    }
    list_modules(folder, installed, sizeof(installed));
    gaudi_complain(
        "no module fits UCX %u.%u.%u (%s)%s%s; installed in %s: %s; build "
        "ucx-gaudi with the source of UCX %u.%u%s (-DUCX_SOURCE_DIRS), or use "
        "a UCX that has a module",
        ucx->major, ucx->minor, ucx->patch, ucx->libucp,
        (why[0] == '\0') ? "" : ": ", why, folder, installed, ucx->major,
        ucx->minor, (why[0] == '\0') ? "" : " and its config.h");
}

/* The path of the module for a UCX; returns 0 after a line that tells what is
 * installed and what to do, when there is none. */
static int find_module(const struct ucx *ucx, char *path, size_t size)
{
    const char *own  = gaudi_own_file();
    const int folder = gaudi_folder_length(own);
    char modules[PATH_MAX];
    char name[NAME_MAX + 1];
    char why[512];

    if (folder == 0) {
        gaudi_complain(
            "the place of the modules is not known, since the loader's "
            "own file is gone; install ucx-gaudi again");
        return 0;
    }
    snprintf(modules, sizeof(modules), "%.*sucx-gaudi", folder, own);
    if (!gaudi_choose_module(modules, ucx->major, ucx->minor, ucx->handle, name,
                             why, sizeof(why)) ||
        ((size_t)snprintf(path, size, "%s/%s/%s", modules, name,
                          gaudi_module_name) >= size)) {
        say_that_none_fits(ucx, modules, why);
        return 0;
    }
    return 1;
}

/* The module that the process has for a release; NULL: it has none. */
static void *open_loaded_module(const struct ucx *ucx)
{
    char soname[64];

    snprintf(soname, sizeof(soname), "libuct_hlthunk-%u.%u.so.0", ucx->major,
             ucx->minor);
    return dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
}

/* One of another installation: what it has registered with UCX must not be
 * registered again. */
static void *find_loaded_module(const struct ucx *ucx, const char *path)
{
    char own[PATH_MAX];
    char other[PATH_MAX];
    void *handle = open_loaded_module(ucx);

    if ((handle != NULL) && (realpath(path, own) != NULL) &&
        ((realpath(gaudi_file_of(handle), other) == NULL) ||
         (strcmp(own, other) != 0))) {
        gaudi_complain("%s is in use already, so %s is not loaded; use one "
                       "installation of ucx-gaudi",
                       gaudi_file_of(handle), own);
    }
    return handle;
}

/* Open a module in sight of its UCX alone; NULL with the reason and its
 * remedy. */
static void *open_file(const char *path, void *libucs, const struct ucx *ucx,
                       char *why, size_t size)
{
    void *bridge = gaudi_open_ucx(ucx->handle, why, size);
    void *handle;

    if (bridge == NULL) {
        return NULL;
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL |
                              (gaudi_is_hidden(libucs) ? RTLD_DEEPBIND : 0));
    if (handle == NULL) {
        snprintf(why, size, "%s (install or build ucx-gaudi again)", dlerror());
    }
    dlclose(bridge); /* the module keeps it */
    return handle;
}

/* The module for a UCX; NULL after a line that tells why not. */
static void *open_module_for(void *libucs, const struct ucx *ucx)
{
    char path[PATH_MAX];
    char why[PATH_MAX + 200];
    void *handle;

    if (!find_module(ucx, path, sizeof(path))) {
        return NULL;
    }
    handle = find_loaded_module(ucx, path);
    if (handle == NULL) {
        handle = open_file(path, libucs, ucx, why, sizeof(why));
        if (handle == NULL) {
            gaudi_complain("the module for UCX %u.%u.%u (%s) cannot be loaded: "
                           "%s",
                           ucx->major, ucx->minor, ucx->patch, ucx->libucp,
                           why);
        }
    }
    return handle;
}

static void *open_module(void *libucs)
{
    struct ucx ucx;
    void *handle;

    if (!find_ucx(libucs, &ucx)) {
        return NULL;
    }
    handle = open_module_for(libucs, &ucx);
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
void gaudi_load_module(const void *caller)
{
    static int done;
    static __thread int is_inside;
    void *libucs;
    void *handle;

    /* Constructors of the module and of libucp may come back. */
    if (is_inside || __atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        return;
    }
    libucs = gaudi_open_libucs(caller);
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

void gaudi_tell_of_another_ucx(const void *caller)
{
    /* By what it was linked with, which finds its own UCX's. */
    void *served =
        gaudi_open_libucs_of(gaudi_module_function("ucs_status_string"));
    void *libucs = gaudi_open_libucs_of(caller);

    if ((served != NULL) && (libucs != NULL) && (served != libucs)) {
        gaudi_complain("the UCX of %s gets no Gaudi transports, since that of "
                       "%s in this process has them; use one UCX, or first the "
                       "one that is to have them",
                       gaudi_file_of(libucs), gaudi_file_of(served));
    }
    if (libucs != NULL) {
        dlclose(libucs);
    }
    if (served != NULL) {
        dlclose(served);
    }
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
    gaudi_load_module(NULL);
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
        gaudi_load_module(__builtin_return_address(0));
        gaudi_load_displaced_modules();
    } else {
        gaudi_tell_of_another_ucx(__builtin_return_address(0));
    }
    return 0;
}
