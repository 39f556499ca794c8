#include "uct/gaudi/base/device_list.h"

#include <gmock/gmock.h>

namespace gaudi::base {

using ::testing::ElementsAre;

namespace {

const std::vector<std::string> box = {"0000:19:00.0", "0000:1a:00.0",
                                      "0000:33:00.0"};

} // namespace

TEST(device_list, auto_takes_the_first_free_one)
{
    const auto selection = select_devices("auto", box);
    EXPECT_THAT(selection.indices, ElementsAre(0, 1, 2));
    EXPECT_EQ(1u, selection.wanted);
    EXPECT_FALSE(selection.named);
}

TEST(device_list, all_takes_every_free_one)
{
    const auto selection = select_devices("all", box);
    EXPECT_EQ(3u, selection.wanted);
    EXPECT_FALSE(selection.named);
}

TEST(device_list, cards_are_named_by_index_and_bus_id_in_any_order)
{
    const auto selection = select_devices("2,0000:19:00.0", box);
    EXPECT_THAT(selection.indices, ElementsAre(2, 0));
    EXPECT_EQ(2u, selection.wanted);
    EXPECT_TRUE(selection.named);
    EXPECT_EQ("", selection.error);
}

TEST(device_list, cards_are_named_as_listings_call_them)
{
    EXPECT_THAT(select_devices("gaudi1,gaudi0", box).indices,
                ElementsAre(1, 0));
    for (const char *wrong : {"gaudi", "gaudi3", "gaudigaudi0", "gaudi-1"}) {
        EXPECT_NE("", select_devices(wrong, box).error) << wrong;
    }
}

TEST(device_list, bad_names_are_quoted_in_the_error)
{
    EXPECT_EQ("'3' is none of the 3 cards of this machine",
              select_devices("0,3", box).error);
    EXPECT_EQ("'0x1' is none of the 3 cards of this machine",
              select_devices("0x1", box).error);
    EXPECT_EQ("'0000:19:00.0' is listed twice",
              select_devices("0,0000:19:00.0", box).error);
    EXPECT_EQ("'' is none of the 3 cards of this machine",
              select_devices("1,,2", box).error);
    EXPECT_EQ("no card is listed", select_devices("", box).error);
}

} // namespace gaudi::base
