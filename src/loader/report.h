/*
 * What the loader says, and what it says it about.
 */
#pragma once

/* Write one line, as printf, with "ucx-gaudi: " in front of it, on stderr. */
__attribute__((format(printf, 1, 2))) void gaudi_say(const char *format, ...);

/* The same for why there is no module, or not this one. A process gets one such
 * line, however many threads come upon the reason. */
__attribute__((format(printf, 1, 2))) void gaudi_complain(const char *format,
                                                          ...);

/* The file that a handle of dlopen stands for, as the dynamic linker was told
 * to open it; "" when it cannot tell. Valid until the file is closed. */
const char *gaudi_file_of(void *handle);
