/*
 * The loader: libuct_hlthunk.so.0 under all its names.
 *
 * It needs nothing but the C library, so a process without UCX has one small
 * library more and nothing else. In a process with UCX it opens the module that
 * was built for that release of UCX, once, from
 * ucx-gaudi/MAJOR.MINOR/libuct_hlthunk.so.0 beside its own file. When it
 * cannot, it says why in one line on stderr, and the program goes on without.
 *
 * Any thread may be in here.
 */
#pragma once

/* Something that others may look up by its name. */
#define GAUDI_EXPORT __attribute__((visibility("default")))

/*
 * Open the module if UCX is in the process, and if nobody tried before. When
 * this returns, the module is loaded and registered, whichever thread did it;
 * or it cannot be, or this thread is just loading it.
 */
void gaudi_load_module(void);

/* A function of the module; NULL when there is no module, or none such. */
void *gaudi_module_function(const char *name);
