/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What cannot be in a process that runs a framework, or with a driver that does
 * not import, test by test.
 */
#pragma once

namespace gaudi::test {

/** Skip the tests that do not hold beside a framework if GAUDI_TEST_FRAMEWORK
 *  is set, or without imports with HLTHUNK_EMU_IMPORT=n. Called by main. */
void skip_what_does_not_hold();

} // namespace gaudi::test
