/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/device_list.h"

#include <gmock/gmock.h>

namespace gaudi::base {

using ::testing::ElementsAre;

namespace {

shim::visible_cards make_box()
{
    shim::visible_cards result;
    for (const char *bus_id :
         {"0000:19:00.0", "0000:1a:00.0", "0000:33:00.0"}) {
        shim::visible_card card;
        card.index       = static_cast<unsigned>(result.cards.size());
        card.info.index  = card.index;
        card.info.bus_id = bus_id;
        result.cards.push_back(card);
    }
    return result;
}

const shim::visible_cards box = make_box();

} // namespace

TEST(device_list, auto_takes_the_first_free_one)
{
    const auto selection = select_devices("auto", box);
    EXPECT_THAT(selection.cards, ElementsAre(0, 1, 2));
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
    EXPECT_THAT(selection.cards, ElementsAre(2, 0));
    EXPECT_EQ(2u, selection.wanted);
    EXPECT_TRUE(selection.named);
    EXPECT_EQ("", selection.error);
}

TEST(device_list, cards_are_named_as_listings_call_them)
{
    EXPECT_THAT(select_devices("gaudi1,gaudi0", box).cards, ElementsAre(1, 0));
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

TEST(device_list, auto_takes_every_card_that_a_variable_chose)
{
    shim::visible_cards chosen = box;
    chosen.chosen              = true;
    const auto selection       = select_devices("auto", chosen);
    EXPECT_THAT(selection.cards, ElementsAre(0, 1, 2));
    EXPECT_EQ(3u, selection.wanted);
    EXPECT_FALSE(selection.named);
}

TEST(device_list, cards_are_named_as_the_mapping_table_does)
{
    shim::visible_cards mapped = box;
    mapped.chosen              = true;
    mapped.cards[0].index      = 7;
    mapped.cards[1].index      = 0;
    mapped.cards.pop_back();
    EXPECT_THAT(select_devices("gaudi0,7", mapped).cards, ElementsAre(1, 0));
    EXPECT_THAT(select_devices("1A:00.0", mapped).cards, ElementsAre(1));
    EXPECT_EQ("'1' is none of the 2 cards that are visible",
              select_devices("1", mapped).error);
    EXPECT_EQ("'gaudi0' is listed twice",
              select_devices("0,gaudi0", mapped).error);
}

TEST(device_list, a_box_without_visible_cards_gives_none)
{
    EXPECT_EQ(0u, select_devices("auto", {}).wanted);
    EXPECT_EQ(0u, select_devices("all", {}).wanted);
    EXPECT_EQ("'0' is none of the 0 cards of this machine",
              select_devices("0", {}).error);
}

} // namespace gaudi::base
