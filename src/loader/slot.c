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
#include <strings.h>
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
    int debug; /* whether UCX's log shows debug lines */
};

/* A setting of UCX; "" when it has none of that name. */
static void get_setting(void *libucs, const char *name, char *value,
                        size_t size)
{
    typedef status_t (*function_t)(const char *, char *, size_t);

    const function_t get =
        (function_t)dlsym(libucs, "ucs_global_opts_get_value");

    value[0] = '\0';
    if (get != NULL) {
        (void)get(name, value, size);
    }
}

/* The folder of modules beside a file. */
static void modules_beside(const char *file, char folder[PATH_MAX])
{
    snprintf(folder, PATH_MAX, "%.*sucx", gaudi_folder_length(file), file);
}

static int find_places(struct places *found)
{
    static const char *const talking[] = {"debug", "trace", "req", "data",
                                          "async", "func",  "poll"};

    void *libucs = gaudi_open_libucs(NULL);
    char file[PATH_MAX];
    char level[32];
    size_t i;

    if (libucs == NULL) {
        return 0;
    }
    modules_beside(gaudi_file_of(libucs), found->told);
    found->resolved[0] = '\0';
    if (realpath(gaudi_file_of(libucs), file) != NULL) {
        modules_beside(file, found->resolved);
    }
    found->configured[0] = '\0';
    if (getauxval(AT_SECURE) == 0) { /* else somebody else's folder */
        get_setting(libucs, "MODULE_DIR", found->configured,
                    sizeof(found->configured));
    }
    get_setting(libucs, "LOG_LEVEL", level, sizeof(level));
    found->debug = 0;
    for (i = 0; i < sizeof(talking) / sizeof(talking[0]); ++i) {
        found->debug |= (strcasecmp(level, talking[i]) == 0);
    }
    dlclose(libucs);
    return 1;
}

static int is_same(const char *one, const char *two)
{
    struct stat first;
    struct stat second;

    return (stat(one, &first) == 0) && (stat(two, &second) == 0) &&
           (first.st_dev == second.st_dev) && (first.st_ino == second.st_ino);
}

static int is_loader(const char *file)
{
    return is_same(gaudi_own_file(), file);
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
static int load(const char *folder, const char *name, int debug)
{
    char file[2 * PATH_MAX];
    void *module;

    snprintf(file, sizeof(file), "%s/%s", folder, name);
    if (is_loader(file)) {
        return 0;
    }
    if (dlopen(file, RTLD_LAZY | RTLD_NOLOAD) != NULL) {
        return 1; /* loaded for another link, or by UCX */
    }
    module = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (module == NULL) {
        if (debug && (access(file, F_OK) == 0)) {
            gaudi_say("%s, which a slot displaces, cannot be loaded: %s", file,
                      dlerror());
        }
        return 0;
    }
    if (debug) {
        gaudi_say("loaded %s, which a slot displaces", file);
    }
    initialize(module);
    return 1;
}

/* Load what is displaced by names of this file in a folder. */
static void load_displaced_in(const char *folder, const struct places *where)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    char file[2 * PATH_MAX];

    if (entries == NULL) {
        return;
    }
    while ((entry = readdir(entries)) != NULL) {
        snprintf(file, sizeof(file), "%s/%s", folder, entry->d_name);
        if ((strncmp(entry->d_name, prefix, strlen(prefix)) == 0) &&
            (strncmp(entry->d_name, own_name, strlen(own_name)) != 0) &&
            is_loader(file) &&
            !load(where->resolved, entry->d_name, where->debug) &&
            !load(where->configured, entry->d_name, where->debug) &&
            where->debug) {
            gaudi_say("no %s was loaded, which a slot displaces",
                      entry->d_name);
        }
    }
    closedir(entries);
}

void gaudi_load_displaced_modules(void)
{
    struct places *where = malloc(sizeof(*where));

    if ((where != NULL) && find_places(where)) {
        load_displaced_in(where->told, where);
        if (!is_same(where->told, where->configured)) {
            load_displaced_in(where->configured, where);
        }
    }
    free(where);
}
