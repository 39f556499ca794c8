/* SPDX-License-Identifier: BSD-3-Clause */
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

#include "loader/running_ucx.h"

#include <limits.h>
#include <stddef.h>

/* Something that others may look up by its name. */
#define GAUDI_EXPORT __attribute__((visibility("default")))

/* ucs_status_t is a packed enumeration: one byte, and the rest of the register
 * means nothing. */
typedef signed char status_t;

/* --- loader.c --------------------------------------------------------------*/

/*
 * Open the module if UCX is in the process, and if nobody tried before. When
 * this returns, the module is loaded and registered, whichever thread did it;
 * or it cannot be, or this thread is just loading it.
 *
 * caller  Code that has the UCX which is meant; NULL: not known.
 */
void gaudi_load_module(const void *caller);

/* Say in a line, once, that the UCX of a caller gets no transports, if those of
 * this process are another one's. For when UCX has loaded its modules. */
void gaudi_tell_of_another_ucx(const void *caller);

/* A function of the module; NULL when there is no module, or none such. */
void *gaudi_module_function(const char *name);

/*
 * The file of this loader, without links; "" when it is gone.
 *
 * It is found at the first call, which the loader's constructor makes: its name
 * may be relative to the folder that the program was started in.
 */
const char *gaudi_own_file(void);

/* --- messages.c ------------------------------------------------------------*/

/* Write one line, as printf, with "ucx-gaudi: " in front of it, on stderr. */
__attribute__((format(printf, 1, 2))) void gaudi_say(const char *format, ...);

/* The same for why there is no module, or not this one. A process gets one such
 * line, however many threads come upon the reason. */
__attribute__((format(printf, 1, 2))) void gaudi_complain(const char *format,
                                                          ...);

/* --- slot.c ----------------------------------------------------------------*/

/*
 * Load the modules that links to this file displace. With them UCX's loader
 * opens this file under another module's name, since it takes the first file of
 * a name that it finds. What it would have found without the links is brought
 * in here. As there, a module that cannot be loaded is a line at debug level
 * and no failure. Called under the lock of UCX's loader.
 */
void gaudi_load_displaced_modules(void);

/* --- tls_setting.c ---------------------------------------------------------*/

/*
 * Replace our names in UCX_TLS by transport names, if UCX is in the process:
 * nobody else is to notice this file.
 *
 * Nothing is done where UCX itself has loaded this file, which may come after
 * it has read the variable.
 */
void gaudi_rewrite_tls_setting(void);

/* Say in a line what UCX_TLS has to be, if it has names that UCX does not know.
 * For a file that UCX has loaded. */
void gaudi_warn_of_tls_setting(void);
