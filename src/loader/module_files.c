#define _GNU_SOURCE
#include "loader/loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The oldest release that modules can be built for. */
enum { OLDEST_MAJOR = 1, OLDEST_MINOR = 13 };

static const char module_name[] = "libuct_hlthunk.so.0";

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

const char *gaudi_own_file(void)
{
    static char path[PATH_MAX];
    static int is_known;
    Dl_info self;

    if (!is_known) {
        if ((dladdr(module_name, &self) == 0) ||
            (realpath(self.dli_fname, path) == NULL)) {
            path[0] = '\0';
        }
        is_known = 1;
    }
    return path;
}

/* A folder is named for a release, as in "1.13". */
static int is_release(const struct dirent *entry)
{
    unsigned major;
    unsigned minor;
    char end;

    return sscanf(entry->d_name, "%u.%u%c", &major, &minor, &end) == 2;
}

/* The releases that have a module in a folder: "1.13, 1.18", or "none". */
static void list_modules(const char *folder, char *list, size_t size)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_release, versionsort);
    char path[2 * PATH_MAX];
    size_t used = 0;
    int i;

    snprintf(list, size, "none");
    for (i = 0; i < count; ++i) {
        snprintf(path, sizeof(path), "%s/%s/%s", folder, entries[i]->d_name,
                 module_name);
        if ((access(path, F_OK) == 0) && (used < size)) {
            used +=
                (size_t)snprintf(list + used, size - used, "%s%s",
                                 (used == 0) ? "" : ", ", entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
}

static void say_that_none_fits(const struct gaudi_ucx *ucx, const char *folder)
{
    char installed[256];

    list_modules(folder, installed, sizeof(installed));
    if ((ucx->major < OLDEST_MAJOR) ||
        ((ucx->major == OLDEST_MAJOR) && (ucx->minor < OLDEST_MINOR))) {
        gaudi_complain(
            "UCX %u.%u.%u (%s) is too old for the Gaudi transports, "
            "which need %u.%u or newer (modules in %s: %s); use a newer "
            "UCX",
            ucx->major, ucx->minor, ucx->patch, ucx->libucp, OLDEST_MAJOR,
            OLDEST_MINOR, folder, installed);
        return;
    }
    gaudi_complain(
        "no module fits UCX %u.%u.%u (%s); installed in %s: %s; build "
        "ucx-gaudi with the source of UCX %u.%u (-DUCX_SOURCE_DIRS), or use a "
        "UCX that has a module",
        ucx->major, ucx->minor, ucx->patch, ucx->libucp, folder, installed,
        ucx->major, ucx->minor);
}

int gaudi_find_module(const struct gaudi_ucx *ucx, char *path, size_t size)
{
    const char *own  = gaudi_own_file();
    const int folder = gaudi_folder_length(own);

    if (folder == 0) {
        gaudi_complain(
            "the place of the modules is not known, since the loader's "
            "own file is gone; install ucx-gaudi again");
        return 0;
    }
    if ((size_t)snprintf(path, size, "%.*sucx-gaudi/%u.%u/%s", folder, own,
                         ucx->major, ucx->minor, module_name) < size &&
        (access(path, F_OK) == 0)) {
        return 1;
    }
    snprintf(path, size, "%.*sucx-gaudi", folder, own);
    say_that_none_fits(ucx, path);
    return 0;
}
