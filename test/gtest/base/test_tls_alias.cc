/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/transport_list.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace gaudi::base {

namespace {

std::string rewrite_tls(const char *tls, bool with_gdr = false)
{
    char *rewritten = gaudi_rewrite_transports(tls, with_gdr);
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

TEST(tls_alias, the_family_has_ucx_own_transport_where_that_is_installed)
{
    EXPECT_EQ("sm,gaudi_cpy,gaudi_ipc,gaudi_gdr,tcp",
              rewrite_tls("sm,gaudi,tcp", true));
    EXPECT_EQ("\\gaudi_cpy,\\gaudi_ipc,\\gaudi_gdr",
              rewrite_tls("\\gaudi", true));
    EXPECT_EQ("^gaudi_cpy,gaudi_ipc,gaudi_gdr", rewrite_tls("^gaudi", true));
    EXPECT_EQ("gaudi_cpy,gaudi_ipc", rewrite_tls("gaudi_copy,gaudi_ipc", true));
}

TEST(tls_alias, everything_else_stays_as_it_is)
{
    for (const char *tls : {"", "all", "gaudi_cpy", "sm,tcp", "^tcp", ",", "a,",
                            "gaudi_copyx", "xgaudi_copy", "^", "\\"}) {
        EXPECT_EQ("unchanged", rewrite_tls(tls));
    }
}

} // namespace gaudi::base
