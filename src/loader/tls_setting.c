/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loader/loader.h"

#include "util/transport_list.h"

#include <dlfcn.h>
#include <stdlib.h>

/* A function of this file, as ucx_gaudi.h has it. */
extern unsigned ucx_gaudi_version(void);

/* Whether the program has this file from its start, preloaded or linked. */
static int is_part_of_program(void)
{
    void *program = dlopen(NULL, RTLD_LAZY);

    return (program != NULL) &&
           (dlsym(program, "ucx_gaudi_version") == (void *)ucx_gaudi_version);
}

/* UCX_TLS with names that UCX knows instead of ours, to be freed; NULL when it
 * is to stay, as in a process without UCX. */
static char *transport_names(void)
{
    const char *tls = secure_getenv("UCX_TLS");
    void *libucs    = gaudi_open_libucs(NULL);
    char *other     = NULL;

    if (libucs != NULL) {
        other = (tls == NULL) ? NULL : gaudi_rewrite_transports(tls);
        dlclose(libucs);
    }
    return other;
}

void gaudi_rewrite_tls_setting(void)
{
    char *tls = transport_names();

    if ((tls != NULL) && is_part_of_program()) {
        /* A variable that exists gets another value in place, which is safe
         * while other threads read the environment. */
        setenv("UCX_TLS", tls, 1);
    }
    free(tls);
}

void gaudi_warn_of_tls_setting(void)
{
    char *tls = transport_names();

    if (tls != NULL) {
        gaudi_say("UCX, which has loaded the Gaudi transports by itself, does "
                  "not know all names in UCX_TLS=%s; write UCX_TLS=%s",
                  secure_getenv("UCX_TLS"), tls);
    }
    free(tls);
}
