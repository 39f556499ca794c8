/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/warning.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace gaudi::util {

namespace {

void print(const char *text)
{
    std::fprintf(stderr, "gaudi: %s\n", text);
}

std::atomic<warning_handler> installed{&print};

} // namespace

void set_warning_handler(warning_handler handler)
{
    installed = (handler != nullptr) ? handler : &print;
}

void warn(const char *format, ...)
{
    va_list arguments;
    char text[256];

    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    installed.load()(text);
}

} // namespace gaudi::util
