/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loader/running_ucx.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
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

/* More than one UCX is rare in a process. */
enum { most_files = 8 };

struct definers {
    const char *function;
    unsigned count;
    char files[most_files][PATH_MAX];
};

/* Where a table of a loaded file is. The dynamic linker writes addresses for
 * offsets, but not into the kernel's own library, which is none of UCX. */
static const void *table_of(const struct dl_phdr_info *object, ElfW(Sxword) tag)
{
    const ElfW(Dyn) *entry = NULL;
    int i;

    for (i = 0; i < object->dlpi_phnum; ++i) {
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            entry = (const void *)(object->dlpi_addr +
                                   object->dlpi_phdr[i].p_vaddr);
        }
    }
    for (; (entry != NULL) && (entry->d_tag != DT_NULL); ++entry) {
        if (entry->d_tag == tag) {
            return (entry->d_un.d_ptr < object->dlpi_addr)
                       ? NULL
                       : (const void *)entry->d_un.d_ptr;
        }
    }
    return NULL;
}

/* Whether a loaded file defines a symbol itself, by its table DT_GNU_HASH: a
 * head, a filter, buckets with the first symbol of each, and a hash for each
 * symbol, whose last bit ends a bucket. */
static int defines(const struct dl_phdr_info *object, const char *name)
{
    const uint32_t *head     = table_of(object, DT_GNU_HASH);
    const ElfW(Sym) *symbols = table_of(object, DT_SYMTAB);
    const char *names        = table_of(object, DT_STRTAB);
    const uint32_t *buckets;
    const uint32_t *hashes;
    uint32_t hash = 5381;
    uint32_t at;
    const char *c;

    if ((head == NULL) || (symbols == NULL) || (names == NULL) ||
        (head[0] == 0)) {
        return 0;
    }
    for (c = name; *c != '\0'; ++c) {
        hash = hash * 33 + (unsigned char)*c;
    }
    buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof(*head));
    hashes  = buckets + head[0];
    at      = buckets[hash % head[0]];
    while (at >= head[1]) {
        const uint32_t one = hashes[at - head[1]];

        if (((one | 1) == (hash | 1)) &&
            (strcmp(names + symbols[at].st_name, name) == 0)) {
            return symbols[at].st_shndx != SHN_UNDEF;
        }
        if (one & 1) {
            break;
        }
        ++at;
    }
    return 0;
}

static int keep_definer(struct dl_phdr_info *object, size_t size, void *arg)
{
    struct definers *found = arg;

    (void)size;
    if ((found->count < most_files) && strchr(object->dlpi_name, '/') &&
        defines(object, found->function)) {
        snprintf(found->files[found->count++], PATH_MAX, "%s",
                 object->dlpi_name);
    }
    return 0;
}

/* The files that define a function, in the order in which they were loaded. */
static void find_definers(const char *function, struct definers *found)
{
    found->function = function;
    found->count    = 0;
    (void)dl_iterate_phdr(keep_definer, found);
}

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
        find_definers(ucs_function, all);
        for (i = all->count; i-- > 0;) {
            chosen = has_this_as_module(all->files[i]) ? i : chosen;
        }
        libucs = (all->count == 0) ? NULL : open_loaded(all->files[chosen]);
    }
    free(all);
    return libucs;
}

/* A loaded library of the UCX that a libucs belongs to, by a function of it;
 * NULL: it is not loaded. One that knows no libucs may be of any. */
static void *open_of_same(void *libucs, const char *function)
{
    const void *own      = dlsym(libucs, ucs_function);
    struct definers *all = malloc(sizeof(*all));
    void *library        = NULL;
    unsigned i;

    if (all == NULL) {
        return NULL;
    }
    find_definers(function, all);
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
    void *libuct               = open_of_same(libucs, uct_function);
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
    void *libucp = open_of_same(libucs, ucp_function);

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

int gaudi_is_ucp(const void *code)
{
    const char *file = file_at(code);
    void *library    = (*file == '\0') ? NULL : open_loaded(file);
    int is_ucp       = 0;

    if (library != NULL) {
        /* The dynamic linker has one name for each file. */
        is_ucp = (file_at(dlsym(library, ucp_function)) == file);
        dlclose(library);
    }
    return is_ucp;
}

int gaudi_is_hidden(void *libucs)
{
    const void *first = dlsym(RTLD_DEFAULT, ucs_function);

    return (first != NULL) && (first != dlsym(libucs, ucs_function));
}
