/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loader/running_ucx.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char gaudi_module_name[] = "libuct_hlthunk.so.0";

/* What a running UCX has: for a symbol whether it is there; for an object or
 * for those of a class their size. -1: UCX does not say. */
static long look_up(void *libucp, const char *kind, const char *name)
{
    const void *symbol     = dlsym(libucp, name);
    const ElfW(Sym) *entry = NULL;
    Dl_info info;

    if ((strcmp(kind, "has") == 0) || (strcmp(kind, "lacks") == 0)) {
        return symbol != NULL;
    }
    if (symbol == NULL) {
        return -1;
    }
    if (strcmp(kind, "class") == 0) { /* ucs_class_t: a name, and then that */
        return ((const long *)symbol)[1];
    }
    return ((dladdr1(symbol, &info, (void **)&entry, RTLD_DL_SYMENT) != 0) &&
            (entry != NULL))
               ? (long)entry->st_size
               : -1;
}

/* Where libucs writes the mode of a ucs_async_context_t; no symbol tells its
 * layout. */
static int has_mode_at(void *libucp, size_t offset, int mode)
{
    typedef signed char (*init_t)(void *, int);
    typedef void (*cleanup_t)(void *);

    const init_t init = (init_t)dlsym(libucp, "ucs_async_context_init");
    const cleanup_t cleanup =
        (cleanup_t)dlsym(libucp, "ucs_async_context_cleanup");
    union {
        char bytes[2048];
        long long aligned;
    } context;
    int written;

    memset(&context, 0xff, sizeof(context));
    if ((init == NULL) || (cleanup == NULL) || (offset > 1024) ||
        (init(&context, mode) != 0)) {
        return 1; /* nothing to compare */
    }
    memcpy(&written, context.bytes + offset, sizeof(written));
    cleanup(&context);
    return written == mode;
}

/* Whether a UCX is laid out as the one that a module was built for, by the
 * lines of base/ucx/print_layout.cc. If not, why. */
static int is_fit(void *libucp, const char *folder, char *why, size_t size)
{
    char path[2 * PATH_MAX + 16];
    char line[256];
    char kind[16];
    char name[128];
    FILE *layout;
    int fits = 1;

    snprintf(path, sizeof(path), "%s/layout", folder);
    layout = fopen(path, "re");
    if (layout == NULL) {
        snprintf(why, size, "its module has no file \"layout\"");
        return 0;
    }
    while (fits && (fgets(line, sizeof(line), layout) != NULL)) {
        long wanted = -1;
        int mode    = 0;
        long found;

        if (sscanf(line, "async %ld %d", &wanted, &mode) == 2) {
            fits = has_mode_at(libucp, (size_t)wanted, mode);
            snprintf(why, size,
                     "ucs_async_context_t differs, as with another "
                     "ENABLE_ASSERT");
        } else if (sscanf(line, "%15s %127s %ld", kind, name, &wanted) == 3) {
            found = look_up(libucp, kind, name);
            fits  = (found == -1) || (found == wanted);
            snprintf(why, size, "%s: %ld bytes instead of %ld", name, found,
                     wanted);
        } else if (sscanf(line, "%15s %127s", kind, name) == 2) {
            found = look_up(libucp, kind, name);
            fits  = (found == (strcmp(kind, "has") == 0));
            snprintf(why, size, "%s is %s", name, found ? "new" : "missing");
        }
    }
    fclose(layout);
    return fits;
}

/* Whether a folder has a module for a release: "1.21", or "1.21-" and what
 * tells it from others of that release. */
static int is_folder_for(const char *release, const char *name)
{
    const size_t length = strlen(release);

    return (strncmp(name, release, length) == 0) &&
           ((name[length] == '\0') || (name[length] == '-'));
}

int gaudi_next_module(const char *modules, char name[NAME_MAX + 1])
{
    char next[NAME_MAX + 1] = "";
    DIR *entries            = opendir(modules);
    const struct dirent *entry;
    char file[2 * PATH_MAX];

    while ((entries != NULL) && ((entry = readdir(entries)) != NULL)) {
        snprintf(file, sizeof(file), "%s/%s/%s", modules, entry->d_name,
                 gaudi_module_name);
        if ((strverscmp(entry->d_name, name) > 0) &&
            ((next[0] == '\0') || (strverscmp(entry->d_name, next) < 0)) &&
            (access(file, F_OK) == 0)) {
            snprintf(next, sizeof(next), "%s", entry->d_name);
        }
    }
    if (entries != NULL) {
        closedir(entries);
    }
    snprintf(name, NAME_MAX + 1, "%s", next);
    return (next[0] != '\0');
}

int gaudi_choose_module(const char *modules, unsigned major, unsigned minor,
                        void *libucp, char chosen[NAME_MAX + 1], char *why,
                        size_t size)
{
    char release[32];
    char folder[2 * PATH_MAX];
    char other[256];
    size_t used;

    snprintf(release, sizeof(release), "%u.%u", major, minor);
    chosen[0] = '\0';
    why[0]    = '\0';
    while (gaudi_next_module(modules, chosen)) {
        if (is_folder_for(release, chosen)) {
            snprintf(folder, sizeof(folder), "%s/%s", modules, chosen);
            if (is_fit(libucp, folder, other, sizeof(other))) {
                return 1;
            }
            used = strlen(why);
            snprintf(why + used, size - used, "%s%s: %s",
                     (used == 0) ? "" : "; ", chosen, other);
        }
    }
    return 0;
}
