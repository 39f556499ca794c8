#include "preload/tls_alias.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char transport[] = "gaudi_cpy";

/* Names that stand for the transport. */
static int is_alias(const char *name, size_t length)
{
    static const char *const aliases[] = {"gaudi_copy", "gaudi"};
    size_t i;

    for (i = 0; i < sizeof(aliases) / sizeof(aliases[0]); ++i) {
        if ((strlen(aliases[i]) == length) &&
            (strncmp(aliases[i], name, length) == 0)) {
            return 1;
        }
    }
    return 0;
}

char *gaudi_rewrite_tls(const char *tls)
{
    /* "gaudi" is the only name that grows. */
    char *result      = malloc(2 * strlen(tls) + 1);
    char *out         = result;
    const char *token = tls;
    int changed       = 0;

    if (result == NULL) {
        return NULL;
    }
    for (;;) {
        /* A backslash in front of a name means "exactly this transport" to UCX,
         * a caret in front of the list "all but these". */
        const size_t marks  = strspn(token, "^\\");
        const size_t length = strcspn(token + marks, ",");

        memcpy(out, token, marks);
        out += marks;
        token += marks;
        if (is_alias(token, length)) {
            memcpy(out, transport, sizeof(transport) - 1);
            out += sizeof(transport) - 1;
            changed = 1;
        } else {
            memcpy(out, token, length);
            out += length;
        }
        token += length;
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
