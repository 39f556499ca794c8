/* SPDX-License-Identifier: BSD-3-Clause */
/* The routes between cards, by name. */
#include "hlthunk_shim/discovery/routes.h"

#include <gmock/gmock.h>

namespace gaudi::test {

using shim::wire;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(routes, are_taken_in_the_order_of_the_setting)
{
    std::vector<wire> order;
    EXPECT_EQ("", shim::parse_routes(shim::default_routes, order));
    EXPECT_THAT(order, ElementsAre(wire::ports, wire::host));
    EXPECT_EQ("", shim::parse_routes("host,ports", order));
    EXPECT_THAT(order, ElementsAre(wire::host, wire::ports));
    EXPECT_STREQ("ports", name_of(order.back()));
    EXPECT_EQ("", shim::parse_routes("host", order));
    EXPECT_THAT(order, ElementsAre(wire::host));
}

TEST(routes, are_refused_when_they_name_no_wire_or_one_twice)
{
    std::vector<wire> order = {wire::host};
    for (const char *wrong :
         {"", ",", "ports,", ",ports", "PORTS", "ports host", "pcie"}) {
        EXPECT_THAT(shim::parse_routes(wrong, order),
                    HasSubstr("is neither ports nor host"))
            << wrong;
    }
    EXPECT_EQ("'ports' is listed twice",
              shim::parse_routes("ports,host,ports", order));
    EXPECT_THAT(order, ElementsAre(wire::host)) << "left as it was";
}

} // namespace gaudi::test
