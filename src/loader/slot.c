/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loader/loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

static const char own_name[] = "libuct_hlthunk.";
static const char prefix[]   = "libuct_";

/* Where UCX looks for modules: in the folder of libucs as the dynamic linker
 * was told, and where UCX_MODULE_DIR says; and the first without its links. */
struct places {
    char told[PATH_MAX];
    char resolved[PATH_MAX];
    char configured[PATH_MAX];
};

/* The folder of modules beside a file. */
static void modules_beside(const char *file, char folder[PATH_MAX])
{
    snprintf(folder, PATH_MAX, "%.*sucx", gaudi_folder_length(file), file);
}

static int find_places(struct places *found)
{
    typedef status_t (*get_t)(const char *, char *, size_t);

    void *libucs = gaudi_open_libucs(NULL);
    char file[PATH_MAX];
    get_t get;

    if (libucs == NULL) {
        return 0;
    }
    modules_beside(gaudi_file_of(libucs), found->told);
    if (realpath(gaudi_file_of(libucs), file) != NULL) {
        modules_beside(file, found->resolved);
    }
    get = (get_t)dlsym(libucs, "ucs_global_opts_get_value");
    /* Of a program with other rights it is somebody else's folder. */
    if ((get != NULL) && (getauxval(AT_SECURE) == 0)) {
        (void)get("MODULE_DIR", found->configured, sizeof(found->configured));
    }
    dlclose(libucs);
    return 1;
}

static int is_loader(const char *file)
{
    struct stat own;
    struct stat other;

    return (stat(gaudi_own_file(), &own) == 0) && (stat(file, &other) == 0) &&
           (own.st_dev == other.st_dev) && (own.st_ino == other.st_ino);
}

/* As UCX's loader does it: a function of the module, not of what it needs. */
static void initialize(void *module)
{
    typedef status_t (*function_t)(void);

    void *symbol         = dlsym(module, "ucs_module_global_init");
    struct link_map *map = NULL;
    Dl_info info;

    if ((symbol != NULL) && (dladdr(symbol, &info) != 0) &&
        (dlinfo(module, RTLD_DI_LINKMAP, &map) == 0) &&
        ((uintptr_t)info.dli_fbase == map->l_addr) &&
        (((function_t)symbol)() != 0)) {
        dlclose(module);
    }
}

/* Returns 1 when the module is there. */
static int load(const char *folder, const char *name)
{
    char file[2 * PATH_MAX];
    void *module;

    snprintf(file, sizeof(file), "%s/%s", folder, name);
    if ((folder[0] == '\0') || is_loader(file)) {
        return 0;
    }
    if (dlopen(file, RTLD_LAZY | RTLD_NOLOAD) != NULL) {
        return 1; /* loaded for another link, or by UCX */
    }
    module = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (module != NULL) {
        initialize(module);
    }
    return module != NULL;
}

/* Load what is displaced by names of this file in a folder. */
static void load_displaced_in(const char *folder, const struct places *where)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    char file[2 * PATH_MAX];

    while ((entries != NULL) && ((entry = readdir(entries)) != NULL)) {
        snprintf(file, sizeof(file), "%s/%s", folder, entry->d_name);
        if ((strncmp(entry->d_name, prefix, strlen(prefix)) == 0) &&
            (strncmp(entry->d_name, own_name, strlen(own_name)) != 0) &&
            is_loader(file) && !load(where->resolved, entry->d_name)) {
            (void)load(where->configured, entry->d_name);
        }
    }
    if (entries != NULL) {
        closedir(entries);
    }
}

void gaudi_load_displaced_modules(void)
{
    struct places *where = calloc(1, sizeof(*where));

    if ((where != NULL) && find_places(where)) {
        load_displaced_in(where->told, where);
        load_displaced_in(where->configured, where);
    }
    free(where);
}
