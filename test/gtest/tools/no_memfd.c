/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded: the files in memory of the name NO_MEMFD are refused, as sandboxes
 * refuse all. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int memfd_create(const char *name,
                                                        unsigned flags)
{
    const char *refused = getenv("NO_MEMFD");

    if ((refused != NULL) && (strcmp(name, refused) == 0)) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_memfd_create, name, flags);
}
