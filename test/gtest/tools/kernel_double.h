/**
 * Programs above the double of the kernel driver, where the test program is:
 * with GAUDI_TEST_KERNEL, see test/README.md. Else nothing changes.
 */
#pragma once

#include "gtest/tools/process.h"

namespace gaudi::test {

/** The variables of a program, and those that bring the double to it; the
 *  library that is tested stands for the emulator. */
environment above_kernel_double(environment variables);

/** Options of the launcher less --emulate; what that would set is written in
 *  front of the command as arguments of `env`. */
arguments without_emulator(arguments options, arguments &settings_p);

} // namespace gaudi::test
