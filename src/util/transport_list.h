/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of transports, as UCX_TLS has them, and our own names in them.
 *
 * UCX cuts transport names to nine characters, so people write `gaudi_copy` for
 * the transport `gaudi_cpy`, and `gaudi` for all of ours (not for gaudi_gdr of
 * UCX's own module).
 *
 * In C, for the loader. Any thread.
 */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a list allows. */
struct gaudi_allowed_transports {
    bool reach_host; /* some that reach host memory of other processes of the
                        machine by shared memory or a network card; `tcp`, which
                        is slower than gaudi_ipc, does not count */
    bool copy;       /* gaudi_cpy */
    bool gaudi;      /* gaudi_cpy or gaudi_ipc */
    bool others;     /* some that are neither, nor `self` */
};

struct gaudi_allowed_transports gaudi_read_transports(const char *list);

/* Our names in a list replaced by transport names: a string to be freed, or
 * NULL when the list has none of them (or there is no memory). */
char *gaudi_rewrite_transports(const char *list);

/* Whether a folder has a module of UCX, as libuct_ib.so.0 is `ib`. Behind the
 * name there may be a packager's addition, as in libuct_ib-1a2b3c4d.so.0. */
bool gaudi_has_module(const char *folder, const char *name);

#ifdef __cplusplus
}
#endif
