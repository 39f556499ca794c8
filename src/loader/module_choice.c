/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loader/running_ucx.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char gaudi_module_name[] = "libuct_hlthunk.so.0";

/* Whether a libuct has the functions that are listed in a folder of a module,
 * and none of those with "-" before them: its tables are those that the module
 * was built with then. */
static int has_functions(void *libucp, const char *folder)
{
    char path[2 * PATH_MAX + 16];
    char name[128];
    FILE *list;
    int fits = 1;

    snprintf(path, sizeof(path), "%s/functions", folder);
    list = fopen(path, "re");
    if (list == NULL) {
        return 1; /* the module looks itself */
    }
    while (fits && (fscanf(list, "%127s", name) == 1)) {
        const int is_absent = (name[0] == '-');

        fits = ((dlsym(libucp, name + is_absent) == NULL) == is_absent);
    }
    fclose(list);
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

void gaudi_choose_module(const char *modules, unsigned major, unsigned minor,
                         void *libucp, char chosen[NAME_MAX + 1])
{
    char name[NAME_MAX + 1] = "";
    int found               = 0;
    char release[32];
    char folder[2 * PATH_MAX];

    snprintf(release, sizeof(release), "%u.%u", major, minor);
    chosen[0] = '\0';
    while (!found && gaudi_next_module(modules, name)) {
        if (is_folder_for(release, name)) {
            snprintf(folder, sizeof(folder), "%s/%s", modules, name);
            found = has_functions(libucp, folder);
            if (found || (chosen[0] == '\0')) {
                snprintf(chosen, NAME_MAX + 1, "%s", name);
            }
        }
    }
}
