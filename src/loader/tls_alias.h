/*
 * Lets people write `gaudi_copy` in UCX_TLS, and `gaudi` for all of ours.
 *
 * UCX cuts transport names to nine characters, so the transport is `gaudi_cpy`.
 * From 1.21 on `gaudi` is also UCX's name for the transport of its own module,
 * gaudi_gdr, where that is installed.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Replace our component names in a UCX_TLS list by transport names.
 *
 * with_gdr  Whether `gaudi` means gaudi_gdr, too.
 *
 * Returns a string to be freed, or NULL when the list names none of them (or
 * there is no memory).
 */
char *gaudi_rewrite_tls(const char *tls, int with_gdr);

/*
 * Whether a UCX_TLS list may have a transport on a network device. 0: it names
 * none but ours and those of UCX that stay within the machine.
 */
int gaudi_may_reach_network(const char *tls);

#ifdef __cplusplus
}
#endif
