/**
 * Variables of programs that may run with more rights than who starts them: all
 * are read with secure_getenv, which heeds none then. Any thread.
 */
#pragma once

namespace gaudi::util {

/** Whether a variable is set and not to be heeded, for what UCX has read. */
bool is_set_by_untrusted_caller(const char *variable);

} // namespace gaudi::util
