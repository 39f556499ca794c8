/**
 * What programs that a test starts need beside their own settings, since the
 * build or the test program is a special one: the runtime of AddressSanitizer
 * for programs that are not instrumented and load libraries that are, and the
 * double of the kernel driver where the test program runs above it (with
 * GAUDI_TEST_KERNEL, see test/README.md). Else nothing changes.
 */
#pragma once

#include "gtest/tools/process.h"

namespace gaudi::test {

/** The variables of a program, and those that bring both to it and to what it
 *  starts; above the double the library that is tested stands for the emulator.
 */
environment with_needs_of_build(environment variables);

/** Options of the launcher less --emulate above the double; what that would set
 *  is written in front of the command as arguments of `env`. */
arguments without_emulator(arguments options, arguments &settings_p);

/** The lines of a sanitizer's report from its heading on; empty without one. */
std::string sanitizer_report(const std::string &output);

} // namespace gaudi::test
