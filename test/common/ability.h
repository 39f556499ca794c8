/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the environment lets a test do: a user without rights and root in a
 * container cannot do everything.
 *
 * A test that needs one of these is skipped where the system itself refuses it.
 * test/tools/results accepts these skips and those of needs.h, no others.
 */
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace gaudi::test {

/** What test/tools/results knows a skip of these by. */
inline constexpr char inability[] = "The system refuses this: ";

/**
 * Try what unshare(2) does with these flags, and what a test of network or
 * mount namespaces does next: to change the network, to enter them again, and,
 * when it is named, to mount a file system of that type.
 *
 * Every function here tries in a child, which changes nothing for this process.
 *
 * @return What the system refused and with which error; empty when it did not
 * refuse, also when the attempt failed in a way that is nobody's refusal: then
 * the test fails where it does the same.
 */
std::string why_no_namespaces(int flags, const char *filesystem = nullptr);

/** The same of giving up a right for all times, PR_CAPBSET_DROP. */
std::string why_no_fewer_rights();

/** The same of becoming another user. */
std::string why_no_other_user();

/** End the test here as skipped when there is a reason. */
#define GAUDI_SKIP_IF(_why)                                                    \
    do {                                                                       \
        const std::string gaudi_why = (_why);                                  \
        if (!gaudi_why.empty()) {                                              \
            GTEST_SKIP() << ::gaudi::test::inability << gaudi_why;             \
        }                                                                      \
    } while (false)

} // namespace gaudi::test
