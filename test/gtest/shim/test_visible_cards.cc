/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/visible_cards.h"

#include <gmock/gmock.h>

namespace gaudi::shim {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

/* Nodes with a gap, modules in another order. */
const std::vector<shim::card_info> box = [] {
    std::vector<shim::card_info> cards(4);
    const unsigned nodes[]   = {0, 1, 4, 5};
    const unsigned modules[] = {6, 3, 0, 1};
    const char *bus_ids[]    = {"0000:19:00.0", "0000:1a:00.0", "0000:33:00.0",
                                "0000:34:00.0"};
    for (unsigned i = 0; i < 4; ++i) {
        cards[i].index     = i;
        cards[i].number    = nodes[i];
        cards[i].module_id = modules[i];
        cards[i].bus_id    = bus_ids[i];
    }
    return cards;
}();

constexpr char two_cards[] =
    R"([{"index":9,"module_id":0,"bus_id":"0000:33:00.0"},)"
    R"({"index":2,"module_id":6,"bus_id":"0000:19:00.0"}])";

std::vector<std::string> names(const shim::visible_cards &visible)
{
    std::vector<std::string> result;
    for (const shim::visible_card &card : visible.cards) {
        result.push_back(card.name() + " " + card.info.bus_id.substr(5));
    }
    return result;
}

std::string error_of(const shim::visibility_variables &variables)
{
    const shim::visible_cards visible =
        shim::find_visible_cards(variables, box);
    EXPECT_THAT(visible.cards, IsEmpty());
    return visible.error;
}

shim::visibility_variables devices(const char *text)
{
    shim::visibility_variables result;
    result.visible_devices = text;
    return result;
}

shim::visibility_variables modules(const char *text)
{
    shim::visibility_variables result;
    result.visible_modules = text;
    return result;
}

shim::visibility_variables table(const std::string &text)
{
    shim::visibility_variables result;
    result.mapping_table = text;
    return result;
}

} // namespace

TEST(visible_cards, are_all_unless_a_variable_chooses)
{
    for (const shim::visibility_variables &variables :
         {shim::visibility_variables{}, devices("all"), devices("ALL"),
          modules("all")}) {
        const shim::visible_cards visible =
            shim::find_visible_cards(variables, box);
        EXPECT_THAT(names(visible),
                    ElementsAre("gaudi0 19:00.0", "gaudi1 1a:00.0",
                                "gaudi2 33:00.0", "gaudi3 34:00.0"));
        EXPECT_FALSE(visible.chosen);
    }
}

TEST(visible_cards, are_those_of_the_listed_device_nodes)
{
    const shim::visible_cards visible =
        shim::find_visible_cards(devices("5, 0"), box);
    EXPECT_THAT(names(visible),
                ElementsAre("gaudi0 19:00.0", "gaudi3 34:00.0"));
    EXPECT_TRUE(visible.chosen);
}

TEST(visible_cards, are_those_of_the_listed_modules)
{
    EXPECT_THAT(names(shim::find_visible_cards(modules("0,6"), box)),
                ElementsAre("gaudi0 19:00.0", "gaudi2 33:00.0"));
    shim::visibility_variables one;
    one.module_id = "3";
    EXPECT_THAT(names(shim::find_visible_cards(one, box)),
                ElementsAre("gaudi1 1a:00.0"));
}

TEST(visible_cards, are_those_that_no_variable_leaves_out)
{
    /* As a launcher of ranks sets them. */
    shim::visibility_variables rank = devices("all");
    rank.visible_modules            = "0,1,3";
    rank.module_id                  = "1";
    EXPECT_THAT(names(shim::find_visible_cards(rank, box)),
                ElementsAre("gaudi3 34:00.0"));

    rank.module_id = "6";
    EXPECT_THAT(error_of(rank), HasSubstr("HLS_MODULE_ID=6"));
}

TEST(visible_cards, none_and_void_hide_all)
{
    for (const char *word : {"none", "void", "None"}) {
        const shim::visible_cards visible =
            shim::find_visible_cards(devices(word), box);
        EXPECT_EQ("", visible.error);
        EXPECT_THAT(visible.cards, IsEmpty());
        EXPECT_TRUE(visible.chosen);
    }
}

TEST(visible_cards, bad_lists_are_quoted_in_the_error)
{
    for (const char *text : {"0,2", "0,,1", "1,", "-1", "1,01"}) {
        EXPECT_THAT(error_of(devices(text)),
                    HasSubstr("HABANA_VISIBLE_DEVICES=" + std::string(text)));
    }
    for (const char *text : {"2", "99999999999"}) {
        EXPECT_THAT(error_of(modules(text)),
                    HasSubstr("HABANA_VISIBLE_MODULES=" + std::string(text)));
    }
    shim::visibility_variables rank;
    rank.module_id = "0,1";
    EXPECT_THAT(error_of(rank), HasSubstr("HLS_MODULE_ID=0,1"));
}

TEST(visible_cards, are_called_and_ordered_as_the_mapping_table_says)
{
    const shim::visible_cards visible =
        shim::find_visible_cards(table(two_cards), box);
    EXPECT_EQ("", visible.error);
    EXPECT_THAT(names(visible),
                ElementsAre("gaudi9 33:00.0", "gaudi2 19:00.0"));
    EXPECT_TRUE(visible.chosen);
}

TEST(visible_cards, lists_go_by_the_box_also_beside_a_mapping_table)
{
    shim::visibility_variables both = table(two_cards);
    both.visible_devices            = "0,1";
    EXPECT_THAT(names(shim::find_visible_cards(both, box)),
                ElementsAre("gaudi2 19:00.0"));
}

TEST(visible_cards, a_mapping_table_has_to_fit_the_box)
{
    EXPECT_THAT(error_of(table("[]")), HasSubstr("GAUDI_MAPPING_TABLE"));
    EXPECT_THAT(error_of(table(
                    R"([{"index":0,"module_id":6,"bus_id":"0000:19:00.0"},)"
                    R"({"index":1,"module_id":1,"bus_id":"0000:b3:00.0"}])")),
                HasSubstr("entry 2: bus_id 0000:b3:00.0"));
    EXPECT_THAT(error_of(table(
                    R"([{"index":0,"module_id":5,"bus_id":"0000:19:00.0"}])")),
                HasSubstr("entry 1: module_id 5"));
}

TEST(visible_cards, a_mapping_table_tells_modules_that_the_box_does_not)
{
    std::vector<shim::card_info> silent = box;
    for (shim::card_info &card : silent) {
        card.module_id.reset();
    }
    EXPECT_THAT(shim::find_visible_cards(modules("0"), silent).error,
                HasSubstr("HABANA_VISIBLE_MODULES=0"));
    const shim::visible_cards visible =
        shim::find_visible_cards(table(two_cards), silent);
    EXPECT_EQ(0u, visible.cards.at(0).info.module_id);
}

} // namespace gaudi::shim
