/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loader/running_ucx.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One for each library, which the loader does not wrap. */
static const char ucs_function[] = "ucs_status_string";
static const char uct_function[] = "uct_component_query";
static const char ucm_function[] = "ucm_set_event_handler";
static const char ucp_function[] = "ucp_get_version";

const char *gaudi_file_of(void *handle)
{
    struct link_map *map = NULL;

    return (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) ? map->l_name : "";
}

int gaudi_folder_length(const char *file)
{
    const char *slash = strrchr(file, '/');

    return (slash == NULL) ? 0 : (int)(slash + 1 - file);
}

/* --- what is loaded -------------------------------------------------------*/

static void *open_loaded(const char *file)
{
    return dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
}

/* The file that an address is in, as the dynamic linker calls it; "" for the
 * program. */
static const char *file_at(const void *address)
{
    struct link_map *map = NULL;
    Dl_info info;

    return ((address != NULL) &&
            (dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) != 0) &&
            (map != NULL))
               ? map->l_name
               : "";
}

/* More than one UCX is rare in a process. */
enum { most_files = 8 };

struct definers {
    const char *library; /* how the names of its files begin */
    unsigned count;
    char files[most_files][PATH_MAX];
};

static int keep_if_named_so(struct dl_phdr_info *object, size_t size, void *arg)
{
    struct definers *found = arg;
    const char *name =
        object->dlpi_name + gaudi_folder_length(object->dlpi_name);
    const size_t length = strlen(found->library);

    (void)size;
    /* Not of modules, as libuct_ib: those of wheels are libuct-HASH.so. */
    if ((found->count < most_files) && (name != object->dlpi_name) &&
        (strncmp(name, found->library, length) == 0) &&
        (strchr(".-", name[length]) != NULL)) {
        snprintf(found->files[found->count++], PATH_MAX, "%s",
                 object->dlpi_name);
    }
    return 0;
}

/* A function as the dynamic linker finds it from a file that is loaded. */
static void *function_in(const char *file, const char *name)
{
    void *handle   = open_loaded(file);
    void *function = NULL;

    if (handle != NULL) {
        function = dlsym(handle, name);
        dlclose(handle);
    }
    return function;
}

/* The files of a library, whose names begin with its name, that define a
 * function, in the order in which they were loaded. */
static void find_definers(const char *library, const char *function,
                          struct definers *found)
{
    unsigned i, kept = 0;

    found->library = library;
    found->count   = 0;
    (void)dl_iterate_phdr(keep_if_named_so, found);
    for (i = 0; i < found->count; ++i) {
        /* Itself, and not only what it needs. */
        if (strcmp(file_at(function_in(found->files[i], function)),
                   found->files[i]) == 0) {
            memmove(found->files[kept++], found->files[i], PATH_MAX);
        }
    }
    found->count = kept;
}

void *gaudi_function_of(const void *code, const char *library, const char *name)
{
    const char *file     = file_at(code);
    void *function       = (*file == '\0') ? NULL : function_in(file, name);
    struct definers *all = NULL;

    if ((function == NULL) && ((code == NULL) || (*file != '\0')) &&
        ((all = malloc(sizeof(*all))) != NULL)) {
        find_definers(library, name, all);
        function = (all->count == 0)
                       ? NULL
                       : function_in(all->files[all->count - 1], name);
    }
    free(all);
    return function;
}

/* --- one UCX --------------------------------------------------------------*/

/* Whether a file is in the folder above that of this one, which UCX's loader
 * has opened as a module then. */
static int has_this_as_module(const char *file)
{
    char folder[PATH_MAX + 8];
    Dl_info self;

    snprintf(folder, sizeof(folder), "%.*sucx/", gaudi_folder_length(file),
             file);
    return (dladdr(ucs_function, &self) != 0) &&
           (strncmp(self.dli_fname, folder,
                    (size_t)gaudi_folder_length(self.dli_fname)) == 0) &&
           (strlen(folder) == (size_t)gaudi_folder_length(self.dli_fname));
}

void *gaudi_open_libucs_of(const void *code)
{
    const char *file = file_at(code);
    void *library    = (*file == '\0') ? NULL : open_loaded(file);
    void *libucs     = NULL;

    if (library != NULL) {
        file   = file_at(dlsym(library, ucs_function));
        libucs = (*file == '\0') ? NULL : open_loaded(file);
        dlclose(library);
    }
    return libucs;
}

void *gaudi_open_libucs(const void *caller)
{
    void *libucs         = gaudi_open_libucs_of(caller);
    struct definers *all = NULL;
    unsigned i, chosen = 0;

    if ((libucs == NULL) && ((all = malloc(sizeof(*all))) != NULL)) {
        find_definers("libucs", ucs_function, all);
        for (i = all->count; i-- > 0;) {
            chosen = has_this_as_module(all->files[i]) ? i : chosen;
        }
        libucs = (all->count == 0) ? NULL : open_loaded(all->files[chosen]);
    }
    free(all);
    return libucs;
}

/* A loaded library of the UCX that a libucs belongs to, by its name and a
 * function of it; NULL: it is not loaded. One that knows no libucs may be of
 * any. */
static void *open_of_same(void *libucs, const char *name, const char *function)
{
    const void *own      = dlsym(libucs, ucs_function);
    struct definers *all = malloc(sizeof(*all));
    void *library        = NULL;
    unsigned i;

    if (all == NULL) {
        return NULL;
    }
    find_definers(name, function, all);
    for (i = 0; (library == NULL) && (i < all->count); ++i) {
        const void *known;

        library = open_loaded(all->files[i]);
        known   = (library == NULL) ? NULL : dlsym(library, ucs_function);
        if ((library != NULL) && (known != NULL) && (known != own)) {
            dlclose(library);
            library = NULL;
        }
    }
    free(all);
    return library;
}

/* The libucp in the folder of a file of UCX, which is named as libucs is; NULL
 * after dlopen's error. */
static void *open_beside(const char *file, const char *libucs)
{
    const char *rest = strstr(libucs + gaudi_folder_length(libucs), "libucs");
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%.*slibucp%s", gaudi_folder_length(file),
             file, (rest == NULL) ? ".so.0" : rest + strlen("libucs"));
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

/* The libucp of a libucs that may be a link, or the copy of one, to lead a
 * program to other modules; NULL after dlopen's error. */
static void *open_libucp_of(void *libucs)
{
    const char *name           = gaudi_file_of(libucs);
    void *libuct               = open_of_same(libucs, "libuct", uct_function);
    char libuct_file[PATH_MAX] = "";
    char file[PATH_MAX];
    void *libucp;

    if (libuct != NULL) {
        snprintf(libuct_file, sizeof(libuct_file), "%s", gaudi_file_of(libuct));
        dlclose(libuct);
    }
    libucp = open_beside(name, name);
    if ((libucp == NULL) && (realpath(name, file) != NULL)) {
        libucp = open_beside(file, name);
    }
    if ((libucp == NULL) && (libuct_file[0] != '\0')) {
        libucp = open_beside(libuct_file, name);
    }
    return libucp;
}

const char *gaudi_libucs_of(void *libucp)
{
    return file_at(dlsym(libucp, ucs_function));
}

void *gaudi_open_libucp(void *libucs)
{
    void *libucp = open_of_same(libucs, "libucp", ucp_function);

    return (libucp != NULL) ? libucp : open_libucp_of(libucs);
}

void *gaudi_open_ucx(void *libucp, char *why, size_t size)
{
    const char *const known[GAUDI_UCX_LIBRARIES] = {
        file_at(dlsym(libucp, uct_function)), gaudi_libucs_of(libucp),
        file_at(dlsym(libucp, ucm_function))};
    char(*files)[PATH_MAX] = calloc(GAUDI_UCX_LIBRARIES, sizeof(*files));
    void *bridge           = NULL;
    int i;

    if (files == NULL) {
        snprintf(why, size, "out of host memory (raise its limit)");
        return NULL;
    }
    for (i = 0; i < GAUDI_UCX_LIBRARIES; ++i) {
        snprintf(files[i], sizeof(files[i]), "%s", known[i]);
    }
    bridge = gaudi_open_bridge(files, why, size);
    free(files);
    return bridge;
}

int gaudi_is_hidden(void *libucs)
{
    const void *first = dlsym(RTLD_DEFAULT, ucs_function);

    return (first != NULL) && (first != dlsym(libucs, ucs_function));
}
