#define _GNU_SOURCE
#include "loader/gdr_module.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether it is in a folder, of which so many characters are given. */
static int is_in(const char *folder, size_t length, const char *below)
{
    char path[PATH_MAX];

    return (length > 0) &&
           ((size_t)snprintf(path, sizeof(path), "%.*s%s/libuct_gaudi.so.0",
                             (int)length, folder, below) < sizeof(path)) &&
           (access(path, F_OK) == 0);
}

/* Folders are separated by colons. */
static int is_in_one_of(const char *folders)
{
    while (folders != NULL) {
        if (is_in(folders, strcspn(folders, ":"), "")) {
            return 1;
        }
        folders = strchr(folders, ':');
        folders = (folders == NULL) ? NULL : folders + 1;
    }
    return 0;
}

int gaudi_has_gdr_module(const char *libucs)
{
    const char *slash = strrchr(libucs, '/');

    return ((slash != NULL) &&
            is_in(libucs, (size_t)(slash - libucs), "/ucx")) ||
           is_in_one_of(secure_getenv("UCX_MODULE_DIR")) ||
           is_in_one_of(secure_getenv("UCX_PLUGIN_PATH"));
}
