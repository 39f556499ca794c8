/* SPDX-License-Identifier: BSD-3-Clause */
/* How the ports of a box are connected: what is known, and what a file says. */
#include "hlthunk_shim/ports/port_maps.h"

#include "common/scratch.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

namespace gaudi::test {

using namespace shim;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace {

/* enum hl_server_type */
constexpr unsigned hls2        = 5;
constexpr unsigned hls2_inside = 7;
constexpr unsigned hls3        = 10;
constexpr unsigned hl338       = 13;
constexpr unsigned hl288       = 14;
constexpr unsigned rack        = 15;
constexpr unsigned whitebox    = 16;
constexpr unsigned all_types[] = {hls2,  hls2_inside, hls3,    hl338,
                                  hl288, rack,        whitebox};

port_map map_of(unsigned server_type)
{
    port_map found;
    EXPECT_EQ(find_port_map(server_type, "", found), "");
    return found;
}

/* Those that lead to no card. */
std::set<unsigned> loose_ports(const port_map &map, unsigned card)
{
    std::set<unsigned> found;
    for (unsigned port = 0; port < ports_of_card; ++port) {
        if (!map.cards.at(card)[port].is_card) {
            found.insert(port);
        }
    }
    return found;
}

/* How many links a card has to each other one. */
std::map<unsigned, size_t> links_of(const port_map &map, unsigned card)
{
    std::map<unsigned, size_t> found;
    for (unsigned peer = 0; peer < map.cards.size(); ++peer) {
        const size_t count = map.between(card, peer).size();
        if (count != 0) {
            found[peer] = count;
        }
    }
    return found;
}

/* All others of a group. */
std::map<unsigned, size_t> each_of(unsigned card, unsigned group, size_t links)
{
    std::map<unsigned, size_t> result;
    for (unsigned peer = card / group * group;
         peer < (card / group + 1) * group; ++peer) {
        if (peer != card) {
            result[peer] = links;
        }
    }
    return result;
}

/* Cards 0 and 1, and one link; HCL has two numbers for no card. */
std::string two_cards(
    const std::string &first_of_card_1 = R"({"REMOTE_CARD":0,"REMOTE_NIC":0})")
{
    const auto ports = [](const std::string &first) {
        std::string text =
            first + R"(,{"REMOTE_CARD":-1,"REMOTE_NIC":1,"REMOTE_SUB_NIC":0})";
        for (unsigned i = 2; i < ports_of_card; ++i) {
            text +=
                R"(,{"REMOTE_CARD":-2,"REMOTE_NIC":)" + std::to_string(i) + "}";
        }
        return text;
    };
    return R"({"HCL_NICS":[{"CARD_LOCATION":1,"NICS":[)" +
           ports(first_of_card_1) + R"(]},{"CARD_LOCATION":0,"NICS":[)" +
           ports(R"({"REMOTE_CARD":1,"REMOTE_NIC":0})") + "]}]}";
}

std::string error_of(const std::string &json)
{
    port_map untouched;
    std::string why = parse_port_map(json, untouched);
    EXPECT_THAT(untouched.cards, IsEmpty());
    return why;
}

} // namespace

TEST(port_maps, are_the_same_from_both_ends)
{
    for (const unsigned type : all_types) {
        const port_map map = map_of(type);
        for (unsigned card = 0; card < map.cards.size(); ++card) {
            for (unsigned port = 0; port < ports_of_card; ++port) {
                const port_end &end = map.cards[card][port];
                if (!end.is_card) {
                    continue;
                }
                EXPECT_NE(end.module_id, card);
                const port_end &back = map.cards.at(end.module_id)[end.port];
                EXPECT_TRUE(back.is_card);
                EXPECT_EQ(back.module_id, card) << map.name;
                EXPECT_EQ(back.port, port) << map.name;
            }
        }
    }
}

TEST(port_maps, have_three_links_of_each_pair_of_eight_or_six_of_four)
{
    const struct {
        unsigned type;
        size_t cards;
        unsigned group;
        size_t links;
    } boxes[] = {{hls2, 8, 8, 3},     {hls2_inside, 8, 8, 3}, {hls3, 8, 8, 3},
                 {hl288, 8, 4, 6},    {hl338, 8, 4, 6},       {rack, 16, 8, 3},
                 {whitebox, 16, 8, 3}};
    for (const auto &box : boxes) {
        const port_map map = map_of(box.type);
        ASSERT_THAT(map.cards, SizeIs(box.cards));
        for (unsigned card = 0; card < box.cards; ++card) {
            EXPECT_EQ(links_of(map, card), each_of(card, box.group, box.links))
                << map.name << ", card " << card;
        }
    }
}

/* HCL's tables, as facts of their own. */
TEST(port_maps, know_which_ports_lead_to_no_card)
{
    const std::set<unsigned> of_hls2  = {8, 22, 23};
    const std::set<unsigned> of_hl288 = {6, 7, 8, 9, 22, 23};
    const std::set<unsigned> of_hl338 = {0, 1, 8, 9, 10, 11};
    for (unsigned card = 0; card < 8; ++card) {
        EXPECT_EQ(loose_ports(map_of(hls2), card), of_hls2);
        EXPECT_EQ(loose_ports(map_of(rack), card + 8), of_hls2);
        EXPECT_EQ(loose_ports(map_of(hl288), card), of_hl288);
        EXPECT_EQ(loose_ports(map_of(hl338), card), of_hl338);
    }
    const port_map map   = map_of(hls3);
    using set            = std::set<unsigned>;
    const set expected[] = {{17, 20, 21}, {5, 8, 9}, {5, 8, 9}, {17, 20, 21},
                            {14, 15, 19}, {2, 3, 7}, {2, 3, 7}, {14, 15, 19}};
    for (unsigned card = 0; card < 8; ++card) {
        EXPECT_EQ(loose_ports(map, card), expected[card]);
    }
}

TEST(port_maps, connect_ports_that_have_other_numbers)
{
    const auto pair_of = [](unsigned type, unsigned own, unsigned peer) {
        std::string text;
        for (const port_pair &each : map_of(type).between(own, peer)) {
            text += std::to_string(each.own) + "-" + std::to_string(each.peer) +
                    " ";
        }
        return text;
    };
    EXPECT_EQ(pair_of(hls2, 0, 2), "10-16 11-17 12-18 ");
    EXPECT_EQ(pair_of(hls2, 6, 4), "10-16 11-17 12-18 ");
    EXPECT_EQ(pair_of(hls2, 1, 5), "6-6 7-7 9-9 ");
    EXPECT_EQ(pair_of(hls3, 0, 1), "0-12 1-13 22-11 ");
    EXPECT_EQ(pair_of(rack, 8, 10), "10-16 11-17 12-18 ");
    EXPECT_EQ(pair_of(hl338, 4, 7), "12-12 13-13 14-14 15-15 18-18 19-19 ");
    EXPECT_EQ(pair_of(hl288, 0, 4), "") << "the groups have no links";
    EXPECT_EQ(pair_of(hls2, 8, 0), "") << "no such card";
}

TEST(port_maps, of_a_file_come_before_what_is_known)
{
    const scratch_directory files;
    const std::string file = files.file("ports.json", two_cards());
    port_map map;
    ASSERT_EQ(find_port_map(hls2, file, map), "");
    EXPECT_EQ(map.name, file);
    ASSERT_THAT(map.cards, SizeIs(2));
    ASSERT_THAT(map.between(0, 1), SizeIs(1));
    EXPECT_THAT(loose_ports(map, 1), SizeIs(23));
    EXPECT_THAT(find_port_map(hls2, "/none", map),
                HasSubstr("HCL_PORT_MAPPING_CONFIG=/none"));
    EXPECT_THAT(find_port_map(17, "", map),
                HasSubstr("HCL_PORT_MAPPING_CONFIG"));
}

TEST(port_maps, of_a_file_are_refused_where_it_is_wrong)
{
    const auto first_port = [](const char *card, const char *port) {
        return two_cards(std::string(R"({"REMOTE_CARD":)") + card +
                         R"(,"REMOTE_NIC":)" + port + "}");
    };
    std::string twice = two_cards();
    twice.replace(twice.find(R"("CARD_LOCATION":1)"), 17,
                  R"("CARD_LOCATION":0)");
    const std::pair<std::string, const char *> wrong[] = {
        {"{", "JSON"},
        {"[]", "HCL_NICS"},
        {R"({"HCL_NICS":[]})", "HCL_NICS"},
        {R"({"HCL_NICS":[{"CARD_LOCATION":1}]})", "CARD_LOCATION"},
        {R"({"HCL_NICS":[{"CARD_LOCATION":0,"NICS":[{}]}]})", "NICS"},
        {first_port("2", "0"), "card 1, port 0: REMOTE_CARD"},
        {first_port("0", "24"), "card 1, port 0: REMOTE_NIC"},
        {first_port("0", "\"0\""), "card 1, port 0: REMOTE_NIC"},
        {first_port("0", "2"), "card 0, port 0 leads to card 1, port 0"},
        {first_port("1", "0"), "card 0, port 0 leads to card 1, port 0"},
        {twice, "card 0"}};
    for (const auto &[json, why] : wrong) {
        EXPECT_THAT(error_of(json), HasSubstr(why)) << json;
    }
}

} // namespace gaudi::test
