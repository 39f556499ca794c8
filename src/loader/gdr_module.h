/*
 * UCX's own module for Gaudi memory, libuct_gaudi.so.0: there is one from 1.21
 * on, which few distributions have.
 */
#pragma once

/* Whether UCX will find it: beside the running libucs, in UCX_MODULE_DIR, or in
 * a folder of UCX_PLUGIN_PATH. 0 when no UCX is in the process. */
int gaudi_has_gdr_module(void);
