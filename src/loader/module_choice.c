/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loader/running_ucx.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
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

void gaudi_choose_module(const char *modules, unsigned major, unsigned minor,
                         void *libucp, char chosen[NAME_MAX + 1])
{
    struct dirent **entries = NULL;
    const int count         = scandir(modules, &entries, NULL, versionsort);
    char release[32];
    char folder[2 * PATH_MAX];
    int found = 0;
    int i;

    snprintf(release, sizeof(release), "%u.%u", major, minor);
    chosen[0] = '\0';
    for (i = 0; i < count; ++i) {
        const char *name = entries[i]->d_name;

        snprintf(folder, sizeof(folder), "%s/%s/%s", modules, name,
                 gaudi_module_name);
        if (!found && is_folder_for(release, name) &&
            (access(folder, F_OK) == 0)) {
            snprintf(folder, sizeof(folder), "%s/%s", modules, name);
            found = has_functions(libucp, folder);
            if (found || (chosen[0] == '\0')) {
                snprintf(chosen, NAME_MAX + 1, "%s", name);
            }
        }
        free(entries[i]);
    }
    free(entries);
}
