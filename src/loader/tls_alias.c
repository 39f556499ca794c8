#include "loader/tls_alias.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRANSPORTS = 3 };

/* Names that stand for transports. */
static const struct {
    const char *name;
    const char *transports[MOST_TRANSPORTS];
} aliases[] = {{"gaudi_copy", {"gaudi_cpy"}},
               {"gaudi", {"gaudi_cpy", "gaudi_ipc", "gaudi_gdr"}}};

/* Transports that a name stands for, or NULL. */
static const char *const *transports_of(const char *name, size_t length)
{
    size_t i;

    for (i = 0; i < sizeof(aliases) / sizeof(aliases[0]); ++i) {
        if ((strlen(aliases[i].name) == length) &&
            (strncmp(aliases[i].name, name, length) == 0)) {
            return aliases[i].transports;
        }
    }
    return NULL;
}

static char *append(char *out, const char *text, size_t length)
{
    memcpy(out, text, length);
    return out + length;
}

char *gaudi_rewrite_tls(const char *tls, int with_gdr)
{
    /* "gaudi," grows most: to "gaudi_cpy,gaudi_ipc,gaudi_gdr,", and so does
     * the backslash in front of it. */
    const int most    = with_gdr ? MOST_TRANSPORTS : MOST_TRANSPORTS - 1;
    char *result      = malloc(6 * strlen(tls) + 1);
    char *out         = result;
    const char *token = tls;
    int changed       = 0;
    int i;

    if (result == NULL) {
        return NULL;
    }
    for (;;) {
        /* A caret in front of the list means "all but these" to UCX, a
         * backslash in front of a name "exactly this transport". */
        const size_t caret            = strspn(token, "^");
        const size_t strict           = strspn(token + caret, "\\");
        const char *name              = token + caret + strict;
        const size_t length           = strcspn(name, ",");
        const char *const *transports = transports_of(name, length);

        out = append(out, token, caret + strict);
        if (transports == NULL) {
            out = append(out, name, length);
        } else {
            out     = append(out, transports[0], strlen(transports[0]));
            changed = 1;
            for (i = 1; (i < most) && (transports[i] != NULL); ++i) {
                *out++ = ',';
                out    = append(out, token + caret, strict);
                out    = append(out, transports[i], strlen(transports[i]));
            }
        }
        token = name + length;
        if (*token == '\0') {
            break;
        }
        *out++ = *token++; /* the comma */
    }
    *out = '\0';

    if (!changed) {
        free(result);
        return NULL;
    }
    return result;
}

/* Of UCX; the aliases of its table, too. */
static const char *const of_this_machine[] = {
    "gaudi",    "gaudi_copy", "gaudi_cpy", "gaudi_ipc", "self",
    "loopback", "mm",         "sm",        "shm",       "posix",
    "sysv",     "xpmem",      "cma",       "knem"};

static int stays_in_machine(const char *name, size_t length)
{
    size_t i;

    for (i = 0; i < sizeof(of_this_machine) / sizeof(of_this_machine[0]); ++i) {
        if ((strlen(of_this_machine[i]) == length) &&
            (strncmp(of_this_machine[i], name, length) == 0)) {
            return 1;
        }
    }
    return 0;
}

int gaudi_may_reach_network(const char *tls)
{
    const char *token = tls;

    for (;;) {
        const char *name    = token + strspn(token, "\\");
        const size_t length = strcspn(name, ",");

        if (!stays_in_machine(name, length)) {
            return 1;
        }
        if (name[length] == '\0') {
            return 0;
        }
        token = name + length + 1;
    }
}
