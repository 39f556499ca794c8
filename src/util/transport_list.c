/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "util/transport_list.h"

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TO_HOST = 1, /* as gaudi_allowed_transports::reach_host */
    COPY    = 2,
    IPC     = 4
};

enum { MOST_NAMES = 22 };

/* Transports, and names of UCX for several at once. */
static const struct {
    int traits;
    const char *names[MOST_NAMES];
} known[] = {
    {TO_HOST | COPY | IPC, {"all"}},
    {COPY | IPC, {"gaudi"}},
    {COPY, {"gaudi_cpy"}},
    {IPC, {"gaudi_ipc"}},
    {TO_HOST, {"shm", "sm", "mm", "posix", "sysv", "xpmem", "cma", "knem"}},
    {TO_HOST, /* by network cards */
     {"ib",        "rc",        "rc_v",    "rc_x",     "rc_verbs", "rc_mlx5",
      "ud",        "ud_v",      "ud_x",    "ud_verbs", "ud_mlx5",  "dc",
      "dc_x",      "dc_mlx5",   "gga",     "gga_mlx5", "srd",      "ugni",
      "ugni_rdma", "ugni_smsg", "ugni_udt"}},
};

enum { MOST_TRANSPORTS = 2 };

/* Names that stand for transports. */
static const struct {
    const char *name;
    const char *transports[MOST_TRANSPORTS];
} aliases[] = {{"gaudi_copy", {"gaudi_cpy"}},
               {"gaudi", {"gaudi_cpy", "gaudi_ipc"}}};

static bool is_same(const char *name, const char *text, size_t length)
{
    return (strlen(name) == length) && (strncmp(name, text, length) == 0);
}

static int traits_of(const char *name, size_t length)
{
    size_t i;
    int j;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        for (j = 0; (j < MOST_NAMES) && (known[i].names[j] != NULL); ++j) {
            if (is_same(known[i].names[j], name, length)) {
                return known[i].traits;
            }
        }
    }
    return 0;
}

/* Transports that a name stands for, or NULL. */
static const char *const *transports_of(const char *name, size_t length)
{
    size_t i;

    for (i = 0; i < sizeof(aliases) / sizeof(aliases[0]); ++i) {
        if (is_same(aliases[i].name, name, length)) {
            return aliases[i].transports;
        }
    }
    return NULL;
}

/* A caret in front of the list means "all but these" to UCX, a backslash in
 * front of a name "exactly this transport". */
struct gaudi_allowed_transports gaudi_read_transports(const char *list)
{
    const bool all_but = (*list == '^');
    const char *name   = list + (all_but ? 1 : 0);
    bool others        = all_but;
    int named          = 0;

    for (;; ++name) {
        const size_t strict = strspn(name, "\\");
        const size_t length = strcspn(name + strict, ",");
        const int traits    = traits_of(name + strict, length);

        name += strict;
        named |= traits;
        others |= (length > 0) && !is_same("self", name, length) &&
                  (strncmp(name, "gaudi", strlen("gaudi")) != 0);
        name += length;
        if (*name == '\0') {
            break;
        }
    }
    if (all_but) {
        named = TO_HOST | (~named & (COPY | IPC));
    }
    return (struct gaudi_allowed_transports){
        .reach_host = (named & TO_HOST) != 0,
        .copy       = (named & COPY) != 0,
        .gaudi      = (named & (COPY | IPC)) != 0,
        .others     = others};
}

char *gaudi_rewrite_transports(const char *list)
{
    /* No name becomes five times as long. */
    char *result = malloc(5 * strlen(list) + 1);
    char *end    = result;
    bool changed = false;

    if (result == NULL) {
        return NULL;
    }
    for (;; ++list) {
        const size_t caret            = strspn(list, "^");
        const size_t strict           = strspn(list + caret, "\\");
        const char *name              = list + caret + strict;
        const size_t length           = strcspn(name, ",");
        const char *const *transports = transports_of(name, length);
        int i;

        end = mempcpy(end, list, caret);
        if (transports == NULL) {
            end = mempcpy(end, list + caret, strict + length);
        }
        for (i = 0; (transports != NULL) && (i < MOST_TRANSPORTS) &&
                    (transports[i] != NULL);
             ++i) {
            end += sprintf(end, "%s%.*s%s", (i == 0) ? "" : ",", (int)strict,
                           list + caret, transports[i]);
            changed = true;
        }
        list = name + length;
        if (*list == '\0') {
            break;
        }
        *end++ = ',';
    }
    *end = '\0';
    if (!changed) {
        free(result);
        return NULL;
    }
    return result;
}

bool gaudi_has_module(const char *folder, const char *name)
{
    static const char prefix[] = "libuct_";

    const size_t length = strlen(name);
    DIR *entries        = opendir(folder);
    const struct dirent *entry;
    bool found = false;

    if (entries == NULL) {
        return false;
    }
    while (!found && ((entry = readdir(entries)) != NULL)) {
        const char *rest = entry->d_name + sizeof(prefix) - 1;

        found = (strncmp(entry->d_name, prefix, sizeof(prefix) - 1) == 0) &&
                (strncmp(rest, name, length) == 0) &&
                ((rest[length] == '.') || (rest[length] == '-'));
    }
    closedir(entries);
    return found;
}
