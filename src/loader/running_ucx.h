/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX's libraries in this process, by how their names begin and the functions
 * that they define: packagers give them longer names, as
 * libucs-1a2b3c4d.so.0.0.0 in a Python wheel, and a process may have several
 * UCXs.
 *
 * For the loader and the launcher. Handles are those of dlopen, and the
 * caller's to close. Any thread may be in here.
 */
#pragma once

#include <limits.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- running_ucx.c ---------------------------------------------------------*/

/* The file that a handle of dlopen stands for, as the dynamic linker was told
 * to open it; "" when it cannot tell. Valid until the file is closed. */
const char *gaudi_file_of(void *handle);

/* The length of a file's folder with its last slash; 0 without a folder. */
int gaudi_folder_length(const char *file);

/* A function of a library of UCX, whose files' names begin so ("libucp"), as
 * some code finds it; else, as for the dynamic linker's, that of the file which
 * was loaded last. NULL: it is not found, or the code is the program's. */
void *gaudi_function_of(const void *code, const char *library,
                        const char *name);

/* The libucs that some code goes by; NULL: it has none, or is the program. */
void *gaudi_open_libucs_of(const void *code);

/* The same; else one whose module the caller's file is, or the first in the
 * process; NULL: there is none. */
void *gaudi_open_libucs(const void *code);

/* The libucp of a libucs, or the one beside it in a program that has none; NULL
 * after dlopen's error. */
void *gaudi_open_libucp(void *libucs);

/* What a libucp goes by, as UCX's loader of modules sees it: the file of its
 * libucs; "" when it has none. */
const char *gaudi_libucs_of(void *libucp);

/* What a module needs of the UCX of a libucp, to be closed when the module is
 * open; NULL with the reason and its remedy. */
void *gaudi_open_ucx(void *libucp, char *why, size_t size);

/* Whether what is looked up in this process comes from another UCX first. */
int gaudi_is_hidden(void *libucs);

/* --- module_choice.c -------------------------------------------------------*/

/* The file of each module, in a folder of its own. */
extern const char gaudi_module_name[];

/* The folder with a module that comes next by its version, among those of
 * modules; after "" the first. Returns 0, and "", when there is none. Not by
 * scandir: what libc allocates we must not free, since another allocator may
 * have been preloaded, past which RTLD_DEEPBIND looks. */
int gaudi_next_module(const char *modules, char name[NAME_MAX + 1]);

/* The folder, among those of modules, of the one that was built for the UCX of
 * a libucp: the one place where that is asked. Returns 0 when none fits, with
 * what is different from those of the release; "" when it has none. */
int gaudi_choose_module(const char *modules, unsigned major, unsigned minor,
                        void *libucp, char chosen[NAME_MAX + 1], char *why,
                        size_t size);

/* --- bridge.c --------------------------------------------------------------*/

/* libuct, libucs and libucm. */
enum { GAUDI_UCX_LIBRARIES = 3 };

/* A library that needs these files, none for "", and is called as the one that
 * modules need; NULL with the reason and its remedy. */
void *gaudi_open_bridge(char files[GAUDI_UCX_LIBRARIES][PATH_MAX], char *why,
                        size_t size);

#ifdef __cplusplus
}
#endif
