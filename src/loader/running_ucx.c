#define _GNU_SOURCE
#include "loader/loader.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char libucp_name[] = "libucp.so.0";

static int ask(void *libucp, struct gaudi_ucx *found)
{
    typedef void (*function_t)(unsigned *, unsigned *, unsigned *);

    const function_t get_version = (function_t)dlsym(libucp, "ucp_get_version");

    snprintf(found->libucp, sizeof(found->libucp), "%s", gaudi_file_of(libucp));
    if (get_version == NULL) {
        gaudi_complain(
            "%s has no ucp_get_version, so the version of UCX is not "
            "known and no module is loaded; install UCX again",
            found->libucp);
        return 0;
    }
    get_version(&found->major, &found->minor, &found->patch);
    return 1;
}

/* The libucp in the folder of a file; NULL after dlopen's error. */
static void *open_beside(const char *file)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%.*s%s", gaudi_folder_length(file), file,
             libucp_name);
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

/* The libucp of a libucs that may be a link, or the copy of one, to lead a
 * program to other modules; NULL after dlopen's error. */
static void *open_libucp_of(void *libucs)
{
    void *libuct               = dlopen("libuct.so.0", RTLD_LAZY | RTLD_NOLOAD);
    char libuct_file[PATH_MAX] = "";
    char file[PATH_MAX];
    void *libucp;

    if (libuct != NULL) {
        snprintf(libuct_file, sizeof(libuct_file), "%s", gaudi_file_of(libuct));
        dlclose(libuct);
    }
    libucp = open_beside(gaudi_file_of(libucs));
    if ((libucp == NULL) && (realpath(gaudi_file_of(libucs), file) != NULL)) {
        libucp = open_beside(file);
    }
    if ((libucp == NULL) && (libuct_file[0] != '\0')) {
        libucp = open_beside(libuct_file);
    }
    return libucp;
}

/* A libucp of the process is asked, wherever it lies. Another one is never
 * opened beside it: their lists of variables would get mixed up, and the
 * process ends when one of them goes. */
int gaudi_find_ucx(void *libucs, struct gaudi_ucx *found)
{
    char error[512];

    found->handle = dlopen(libucp_name, RTLD_LAZY | RTLD_NOLOAD);
    if (found->handle == NULL) {
        found->handle = open_libucp_of(libucs);
    }
    if (found->handle == NULL) {
        /* The next call of the dynamic linker frees the text. */
        snprintf(error, sizeof(error), "%s", dlerror());
        gaudi_complain(
            "the version of UCX is not known, since %s has no usable "
            "libucp.so.0 beside it: %s; no module is loaded",
            gaudi_file_of(libucs), error);
        return 0;
    }
    if (!ask(found->handle, found)) {
        dlclose(found->handle);
        return 0;
    }
    return 1;
}
