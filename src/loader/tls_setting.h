/*
 * UCX_TLS in this process: UCX does not know all of our names.
 */
#pragma once

/*
 * A list of transports with names that UCX knows instead of ours, to be freed;
 * NULL when it is to stay, as in a process without UCX.
 */
char *gaudi_transport_names(const char *tls);

/*
 * Replace our names in UCX_TLS by transport names, if UCX is in the process:
 * only with it can be told whether `gaudi` means gaudi_gdr, too. A process
 * without UCX leaves the variable to its children as it is.
 *
 * Nothing is done where UCX itself has loaded this file, which may come after
 * it has read the variable.
 */
void gaudi_rewrite_tls_setting(void);

/* Say in a line what UCX_TLS has to be, if it has names that UCX does not know.
 * For a file that UCX has loaded. */
void gaudi_warn_of_tls_setting(void);

/* Say in a line that connections to a listener fail, if UCX_TLS has no
 * transport for them. For a program that makes one; once. */
void gaudi_warn_of_listener(void);
