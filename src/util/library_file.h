/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a file may be given to dlopen, which maps what the headers of a
 * library promise and does not see that a file ends before: programs end by
 * SIGBUS then, in the dynamic linker. It opens a FIFO, too, and waits.
 *
 * In C, for the loader, which needs nothing but the C library. Any thread.
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Look at a file.
 *
 * Returns 1 when it is a whole one, or dlopen says itself what is wrong, as of
 * a file that is not there. Returns 0 with the reason, which names the file. A
 * bare name, which the dynamic linker looks for, is not looked at.
 */
int gaudi_may_be_loaded(const char *file, char *reason, size_t size);

#ifdef __cplusplus
}
#endif
