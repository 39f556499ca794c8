/*
 * A component of a program that loads UCX late, as Open MPI's are.
 */
#ifndef GAUDI_TEST_LATE_UCX_PLUGIN_H
#define GAUDI_TEST_LATE_UCX_PLUGIN_H

/* Open a UCP context and print it. Returns an exit code. */
int late_ucx_show_context(void);

#endif
