/**
 * What cannot be in a process that runs a framework, test by test.
 */
#pragma once

namespace gaudi::test {

/** Skip the tests that do not hold beside a framework if GAUDI_TEST_FRAMEWORK
 * is set. Called by main. */
void skip_what_no_framework_allows();

} // namespace gaudi::test
