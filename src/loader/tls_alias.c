#include "loader/tls_alias.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Names that stand for transports. */
static const struct {
    const char *name;
    const char *transports[2];
} aliases[] = {{"gaudi_copy", {"gaudi_cpy"}},
               {"gaudi", {"gaudi_cpy", "gaudi_ipc"}}};

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

char *gaudi_rewrite_tls(const char *tls)
{
    /* "gaudi," grows most: to "gaudi_cpy,gaudi_ipc,", and so does the
     * backslash in front of it. */
    char *result      = malloc(4 * strlen(tls) + 1);
    char *out         = result;
    const char *token = tls;
    int changed       = 0;

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
            if (transports[1] != NULL) {
                *out++ = ',';
                out    = append(out, token + caret, strict);
                out    = append(out, transports[1], strlen(transports[1]));
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
