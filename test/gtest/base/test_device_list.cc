/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/device_list.h"

#include <gmock/gmock.h>

namespace gaudi::base {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

namespace {

const shim::visible_cards box = [] {
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
}();

struct row {
    const char *text;
    std::vector<size_t> cards;
    unsigned wanted;
    bool named;
};

void expect(const shim::visible_cards &visible, const std::vector<row> &rows)
{
    for (const row &each : rows) {
        const auto selection = select_devices(each.text, visible);
        EXPECT_EQ("", selection.error) << each.text;
        EXPECT_THAT(selection.cards, ElementsAreArray(each.cards));
        EXPECT_EQ(each.wanted, selection.wanted) << each.text;
        EXPECT_EQ(each.named, selection.named) << each.text;
    }
}

} // namespace

TEST(device_list, chooses_by_words_indices_names_and_bus_ids)
{
    expect(box, {{"auto", {0, 1, 2}, 1, false},
                 {"all", {0, 1, 2}, 3, false},
                 {"2,0000:19:00.0", {2, 0}, 2, true},
                 {"gaudi1,gaudi0", {1, 0}, 2, true}});
    expect({}, {{"auto", {}, 0, false}, {"all", {}, 0, false}});
}

TEST(device_list, quotes_what_it_refuses)
{
    for (const auto &[text, why] : {std::pair{"0,3", "'3' is none"},
                                    {"0x1", "'0x1' is none"},
                                    {"gaudi3", "'gaudi3' is none"},
                                    {"gaudi-1", "'gaudi-1' is none"},
                                    {"1,,2", "'' is none"},
                                    {"0,0000:19:00.0", "'0000:19:00.0' is "},
                                    {"", "no card"}}) {
        EXPECT_THAT(select_devices(text, box).error, HasSubstr(why));
    }
    EXPECT_THAT(select_devices("0", {}).error, HasSubstr("'0' is none"));
}

TEST(device_list, goes_by_the_mapping_table)
{
    shim::visible_cards mapped = box;
    mapped.chosen              = true;
    mapped.cards[0].index      = 7;
    mapped.cards[1].index      = 0;
    mapped.cards.pop_back();
    expect(mapped, {{"auto", {0, 1}, 2, false},
                    {"gaudi0,7", {1, 0}, 2, true},
                    {"1A:00.0", {1}, 1, true}});
    EXPECT_THAT(select_devices("1", mapped).error, HasSubstr("'1' is none"));
    EXPECT_THAT(select_devices("0,gaudi0", mapped).error,
                HasSubstr("'gaudi0' is listed twice"));
}

} // namespace gaudi::base
