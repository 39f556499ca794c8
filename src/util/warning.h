/**
 * Where the shim reports what a destructor cannot return.
 *
 * The shim knows no logger; whoever uses it installs one, before the first
 * device is opened. Without one, warnings go to stderr.
 */
#pragma once

namespace gaudi::util {

/** Receives one line of text without a newline; must not throw. */
using warning_handler = void (*)(const char *text);

/** Install a handler for the process; nullptr restores the default. */
void set_warning_handler(warning_handler handler);

/** Report a failed clean-up. */
[[gnu::format(printf, 1, 2)]] void warn(const char *format, ...);

} // namespace gaudi::util
