/*
 * Lets people write `gaudi_copy` in UCX_TLS, and `gaudi` for all of ours.
 *
 * UCX cuts transport names to nine characters, so the transport is `gaudi_cpy`.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Replace our component names in a UCX_TLS list by transport names.
 *
 * Returns a string to be freed, or NULL when the list names none of them (or
 * there is no memory).
 */
char *gaudi_rewrite_tls(const char *tls);

#ifdef __cplusplus
}
#endif
