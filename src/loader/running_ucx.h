/*
 * Which UCX this process has.
 */
#pragma once

#include <limits.h>

struct gaudi_ucx {
    unsigned major;
    unsigned minor;
    unsigned patch;
    char libucp[PATH_MAX]; /* the file that told */
    void *handle;          /* of it: the caller's to close */
};

/*
 * Ask the libucp of this process for its version, or the one beside libucs in a
 * program that has none: only libucp has a function that tells.
 *
 * libucs  A handle of the process's libucs.
 *
 * Returns 0, after a line that tells why, when the version cannot be found out.
 */
int gaudi_find_ucx(void *libucs, struct gaudi_ucx *found);
