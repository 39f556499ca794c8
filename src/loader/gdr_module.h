/*
 * UCX's own module for Gaudi memory, libuct_gaudi.so.0: there is one from 1.21
 * on, which few distributions have.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Whether UCX will find it: in the folder of modules beside its libucs, in
 * UCX_MODULE_DIR, or in a folder of UCX_PLUGIN_PATH.
 *
 * libucs  The file, as UCX goes by it.
 */
int gaudi_has_gdr_module(const char *libucs);

#ifdef __cplusplus
}
#endif
