/**
 * What cannot be in a process that runs a framework, test by test.
 */
#pragma once

#include <string>

namespace gaudi::test {

/** What scripts/test knows a skip of these by. */
inline constexpr char beside_framework[] =
    "Beside a framework this is not so: ";

/** Why a test does not hold when the whole suite runs beside a framework;
 *  empty when it does.
 *  @param name  SUITE.TEST. */
std::string why_not_beside_framework(const std::string &name);

/** Skip these tests if GAUDI_TEST_FRAMEWORK is set. Called by main. */
void skip_what_no_framework_allows();

} // namespace gaudi::test
