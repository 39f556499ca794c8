/* SPDX-License-Identifier: BSD-3-Clause */
#include "loader/loader.h"

#include <stdarg.h>
#include <stdio.h>

static void say(const char *format, va_list arguments)
{
    char line[2048];

    vsnprintf(line, sizeof(line), format, arguments);
    fprintf(stderr, "ucx-gaudi: %s\n", line);
}

void gaudi_say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

void gaudi_complain(const char *format, ...)
{
    static int said;
    va_list arguments;

    if (__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) {
        return;
    }
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}
