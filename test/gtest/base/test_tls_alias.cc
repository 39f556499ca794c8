/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/transport_list.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace gaudi::base {

namespace {

std::string rewrite_tls(const char *tls)
{
    char *rewritten = gaudi_rewrite_transports(tls);
    std::string result((rewritten != nullptr) ? rewritten : "unchanged");
    std::free(rewritten);
    return result;
}

} // namespace

TEST(tls_alias, our_names_become_transport_names)
{
    EXPECT_EQ("gaudi_cpy,sm", rewrite_tls("gaudi_copy,sm"));
    EXPECT_EQ("sm,gaudi_cpy,gaudi_ipc", rewrite_tls("sm,gaudi"));
    EXPECT_EQ("\\gaudi_cpy,\\gaudi_ipc,tcp", rewrite_tls("\\gaudi,tcp"));
    EXPECT_EQ("^gaudi_cpy,gaudi_ipc", rewrite_tls("^gaudi"));
    EXPECT_EQ("\\gaudi_cpy,tcp", rewrite_tls("\\gaudi_copy,tcp"));
    EXPECT_EQ("^gaudi_cpy", rewrite_tls("^gaudi_copy"));
    EXPECT_EQ("gaudi_cpy,gaudi_ipc", rewrite_tls("gaudi_copy,gaudi_ipc"));
    EXPECT_EQ("gaudi_cpy,gaudi_ipc,gaudi_cpy,gaudi_ipc,",
              rewrite_tls("gaudi,gaudi,"));
}

TEST(tls_alias, everything_else_stays_as_it_is)
{
    for (const char *tls : {"", "all", "gaudi_cpy", "sm,tcp", "^tcp", ",", "a,",
                            "gaudi_copyx", "xgaudi_copy", "^", "\\"}) {
        EXPECT_EQ("unchanged", rewrite_tls(tls));
    }
}

} // namespace gaudi::base
