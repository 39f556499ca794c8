/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Where code that knows no logger reports what it cannot return: destructors of
 * the shim, threads of its own.
 *
 * Whoever has a logger installs it, before the first device is opened. Without
 * one, warnings go to stderr.
 */
#pragma once

namespace gaudi::util {

/** Receives one line of text without a newline; must not throw. */
using warning_handler = void (*)(const char *text);

/** Install a handler for the process; nullptr restores the default. */
void set_warning_handler(warning_handler handler);

/** Report what went wrong, in one line. */
[[gnu::format(printf, 1, 2)]] void warn(const char *format, ...);

} // namespace gaudi::util
