/**
 * What programs need that are not instrumented, but load this build's
 * libraries, which are: the runtime of AddressSanitizer, before anything else.
 *
 * In a build without sanitizers nothing changes and nothing is found.
 */
#pragma once

#include "gtest/tools/process.h"

namespace gaudi::test {

/** The variables of a program, and those that bring the runtime to it and to
 *  the programs that it starts. */
environment with_sanitizer(environment variables);

/** The lines of a sanitizer's report from its heading on; empty without one. */
std::string sanitizer_report(const std::string &output);

} // namespace gaudi::test
