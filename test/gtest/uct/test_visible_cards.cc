/* SPDX-License-Identifier: BSD-3-Clause */
/* Which cards a process opens, what they are called, and where they sit. */
#include "gtest/uct/fixture.h"

#include "common/scratch.h"

#include <algorithm>
#include <thread>

#include <dlfcn.h>

extern "C" {
#include <config.h>
#include <ucs/sys/topo/base/topo.h>
}

namespace gaudi::test {

namespace {

using environment = child_environment;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr unsigned card_count = 4;

/* Cards 2 and 0 of the box. */
constexpr char two_cards[] =
    R"([{"index":9,"module_id":2,"bus_id":"0000:33:00.0"},)"
    R"({"index":4,"module_id":0,"bus_id":"0000:19:00.0"}])";

/* Of a child in a box of four. */
child_options box_with(environment variables)
{
    variables.emplace_back("HLTHUNK_EMU_DEVICES", std::to_string(card_count));
    return {std::move(variables), -1};
}

/* The same where UCX itself has to open cards, and logs to stderr. */
child_result run_in_box_of_ucx(const char *child, environment variables)
{
    return run_child(child,
                     logging(box_with(std::move(variables)).environment));
}

/* How often this process opened a card of the box. */
uint64_t opens_of(unsigned index)
{
    const int fd = hl().hlthunk_open_control(static_cast<int>(index), nullptr);
    hlthunk_open_stats_info stats{};
    hl().hlthunk_get_open_stats(fd, &stats);
    hl().hlthunk_close(fd);
    return stats.open_counter;
}

/* "gaudi9=2 gaudi4=0": the cards of an open memory domain, in its order, by
 * name and index in the box. */
std::string cards_of(uct_md_h md)
{
    uct_tl_resource_desc_t *tls;
    unsigned count;
    if (uct_md_query_tl_resources(md, &tls, &count) != UCS_OK) {
        return "";
    }
    std::string found;
    for (unsigned i = 0; i < count; ++i) {
        char bus[UCS_SYS_BDF_NAME_MAX];
        ucs_topo_sys_device_bdf_name(tls[i].sys_device, bus, sizeof(bus));
        found += (i > 0) ? " " : "";
        found += tls[i].dev_name;
        for (unsigned card = 0; card < card_count; ++card) {
            if (bus == bus_id(card)) {
                found += "=" + std::to_string(card);
            }
        }
    }
    uct_release_tl_resource_list(tls);
    return found;
}

/* Whether UCX opens several cards: by SynapseAI it has one. */
bool opens_several_cards()
{
    return !runs_beside_framework() &&
           (std::getenv("UCX_GAUDI_ENGINE") == nullptr);
}

/* Expect some cards to be open, and no others; the first of them, where a
 * process has one. */
void expect_cards(const environment &variables, std::string cards)
{
    if (!opens_several_cards()) {
        cards = cards.substr(0, cards.find(' '));
    }
    environment all = variables;
    all.emplace_back("EXPECTED_CARDS", cards);
    EXPECT_THAT(run_in_box_of_ucx("opens_these_cards", all),
                ended(0, IsEmpty()));
}

void expect_refusal(const environment &variables, const std::string &error)
{
    EXPECT_THAT(run_in_box_of_ucx("opens_no_card", variables),
                ended(-UCS_ERR_INVALID_PARAM, HasSubstr("ERROR " + error)));
}

/* In a child: EXPECTED_CARDS are open, once, and no others. */
void expect_expected_cards(uct_md_h md)
{
    const std::string expected = std::getenv("EXPECTED_CARDS");
    EXPECT_EQ(expected, cards_of(md));
    for (unsigned card = 0; card < card_count; ++card) {
        const bool wanted =
            (expected + " ").find("=" + std::to_string(card) + " ") !=
            expected.npos;
        EXPECT_EQ(wanted ? 1u : 0u, opens_of(card)) << "of card " << card;
    }
}

} // namespace

GAUDI_CHILD(opens_these_cards)
{
    const opened_domain md;
    expect_expected_cards(md);
    return 0;
}

/* Exit code: the negated status. */
GAUDI_CHILD(opens_no_card)
{
    load_module();
    uct_md_h md;
    const ucs_status_t status = open_md(md);
    for (unsigned card = 0; card < card_count; ++card) {
        GAUDI_CHILD_REQUIRE(opens_of(card) == 0);
    }
    if (status == UCS_OK) {
        uct_md_close(md);
    }
    return -status;
}

TEST(visible_cards, one_is_opened_when_nobody_says_which)
{
    expect_cards({}, "gaudi0=0");
    expect_cards({{"HABANA_VISIBLE_DEVICES", "all"}}, "gaudi0=0");
    /* A framework's, if there is one. */
    EXPECT_TRUE(child_passes("opens_these_cards",
                             box_with({{"EXPECTED_CARDS", "gaudi0=0"}})));
}

TEST(visible_cards, are_all_opened_when_a_variable_chooses_them)
{
    expect_cards({{"HABANA_VISIBLE_DEVICES", "1,3"}}, "gaudi1=1 gaudi3=3");
    expect_cards({{"HABANA_VISIBLE_MODULES", "2,1"}}, "gaudi1=1 gaudi2=2");
    expect_cards({{"HABANA_VISIBLE_DEVICES", "all"},
                  {"HABANA_VISIBLE_MODULES", "0,1,2"},
                  {"HLS_MODULE_ID", "2"}},
                 "gaudi2=2");
}

TEST(visible_cards, have_the_names_and_the_order_of_the_mapping_table)
{
    expect_cards({{"GAUDI_MAPPING_TABLE", two_cards}}, "gaudi9=2 gaudi4=0");
    const scratch_directory files;
    expect_cards({{"GAUDI_MAPPING_TABLE", files.file("map.json", two_cards)}},
                 "gaudi9=2 gaudi4=0");
}

TEST(visible_cards, are_what_the_list_of_devices_selects_from)
{
    const environment table = {{"GAUDI_MAPPING_TABLE", two_cards}};
    const auto with         = [&](const char *devices) {
        environment both = table;
        both.emplace_back("UCX_GAUDI_DEVICES", devices);
        return both;
    };
    expect_cards(with("all"), "gaudi9=2 gaudi4=0");
    if (opens_several_cards()) {
        expect_cards(with("gaudi4,gaudi9"), "gaudi4=0 gaudi9=2");
    }
    expect_cards(with("4"), "gaudi4=0");
    expect_cards(with("0000:33:00.0"), "gaudi9=2");
    expect_refusal(with("1"), "UCX_GAUDI_DEVICES=1: '1' is none of the 2 ");
    expect_refusal(with("0000:1a:00.0"), "UCX_GAUDI_DEVICES=0000:1a:00.0: ");
}

TEST(visible_cards, a_bad_variable_opens_none_and_is_told)
{
    expect_refusal({{"GAUDI_MAPPING_TABLE",
                     R"([{"index":0,"module_id":0,"bus_id":"0000:19:00.0"},)"
                     R"({"index":0,"module_id":1,"bus_id":"0000:1a:00.0"}])"}},
                   "GAUDI_MAPPING_TABLE: entry 2: index 0");
    expect_refusal({{"GAUDI_MAPPING_TABLE", "/no/such/table"}},
                   "GAUDI_MAPPING_TABLE=/no/such/table: ");
    expect_refusal({{"GAUDI_MAPPING_TABLE", "[{\n}"}},
                   "GAUDI_MAPPING_TABLE: near line 2, column 2: ");
    expect_refusal({{"HABANA_VISIBLE_DEVICES", "0,4"}},
                   "HABANA_VISIBLE_DEVICES=0,4: ");
    expect_refusal({{"HABANA_VISIBLE_MODULES", "one"}},
                   "HABANA_VISIBLE_MODULES=one: ");
    expect_refusal({{"HLS_MODULE_ID", "7"}}, "HLS_MODULE_ID=7: ");
}

TEST(visible_cards, can_be_none_without_noise)
{
    EXPECT_THAT(run_in_box_of_ucx("opens_no_card",
                                  {{"HABANA_VISIBLE_DEVICES", "none"}}),
                ended(0, IsEmpty()));
}

TEST(visible_cards, that_are_busy_are_left_out)
{
    environment box =
        box_with({{"HLTHUNK_EMU_NODE", "busy-" + std::to_string(getpid())},
                  {"HABANA_VISIBLE_DEVICES", "0"}})
            .environment;
    child_process other("holds_its_cards", {with_cards_of_ucx(box), -1});
    ASSERT_EQ("open", other.read_line());

    box[1].second = "0,2";
    expect_cards(box, "gaudi2=2");
    box[1].second = "0";
    EXPECT_EQ(0, run_in_box_of_ucx("opens_no_card", box).exit_code);
    other.write_line("done");
    EXPECT_EQ(0, other.wait().exit_code);
}

GAUDI_CHILD(holds_its_cards)
{
    const opened_domain md;
    tell_parent("open");
    wait_for_parent();
    return 0;
}

TEST_IN_CHILD(visible_cards, are_opened_once_whoever_comes_first,
              box_with({{"UCX_GAUDI_DEVICES", "all"},
                        {"EXPECTED_CARDS",
                         !has_one_card() ? "gaudi0=0 gaudi1=1 gaudi2=2 gaudi3=3"
                                         : "gaudi0=0"}}))
{
    load_module();
    constexpr unsigned count = 8;
    uct_md_h domains[count]  = {};
    std::vector<std::jthread> threads;
    for (uct_md_h &md : domains) {
        threads.emplace_back([&md] { EXPECT_EQ(UCS_OK, open_md(md)); });
    }
    threads.clear(); /* when they have ended */
    for (uct_md_h md : domains) {
        expect_expected_cards(md);
    }
    for (uct_md_h md : domains) {
        uct_md_close(md);
    }
}

/* --- where they sit --------------------------------------------------------*/

TEST(card_placement, is_that_of_sysfs)
{
    const scratch_directory files;
    for (const char *devices : {"all", "1"}) {
        const child_result child =
            run_in_box_of_ucx("knows_where_its_cards_sit",
                              {{"HLTHUNK_EMU_SYSFS", files.path("sys")},
                               {"UCX_GAUDI_DEVICES", devices}});
        EXPECT_EQ(0, child.exit_code) << child.error;
    }
}

/* Else cards that sysfs does not show are near everything. */
static bool ucx_leaves_distances_to_others()
{
    return (dlsym(RTLD_DEFAULT, "ucs_sys_topo_methods_list") != nullptr) ||
           (dlsym(RTLD_DEFAULT, "ucs_sys_topo_providers_list") != nullptr);
}

GAUDI_CHILD(knows_where_its_cards_sit)
{
    /* The machine may have one node, and the cards be near all CPUs. */
    const std::string root      = hl().hlthunk_sys_sysfs();
    const int nodes[card_count] = {0, 0, 1, -1};
    for (unsigned card = 0; card < card_count; ++card) {
        const std::string folder =
            root + "/bus/pci/devices/" + bus_id(card) + "/";
        std::filesystem::remove(folder + "local_cpulist");
        std::ofstream(folder + "local_cpulist")
            << card << "," << 10 + card << "-12\n";
        std::filesystem::remove(folder + "numa_node");
        std::ofstream(folder + "numa_node") << nodes[card] << "\n";
    }
    const opened_domain md;
    const bool all      = (std::getenv("UCX_GAUDI_DEVICES")[0] == 'a');
    const unsigned near = all ? 0 : 1;
    uct_md_attr_t attr;
    EXPECT_EQ(UCS_OK, uct_md_query(md, &attr));
    for (unsigned cpu = 0; cpu < UCS_CPU_SETSIZE; ++cpu) {
        const bool local = (cpu == near) || ((cpu >= 10 + near) && (cpu <= 12));
        GAUDI_CHILD_REQUIRE((ucs_cpu_is_set(static_cast<int>(cpu),
                                            &attr.local_cpus) != 0) == local);
    }
    if (all && opens_several_cards()) {
        ucs_sys_device_t devices[card_count];
        for (unsigned card = 0; card < card_count; ++card) {
            EXPECT_EQ(UCS_OK, ucs_topo_find_device_by_bdf_name(
                                  bus_id(card).c_str(), &devices[card]));
        }
        const auto distance = [&](unsigned first, unsigned second) {
            ucs_sys_dev_distance_t found{-1, -1};
            (void)ucs_topo_get_distance(devices[first], devices[second],
                                        &found);
            return found;
        };
        const auto same_node = distance(0, 1);
        const auto two_nodes = distance(0, 2);
        const auto unknown   = distance(0, 3);
        GAUDI_CHILD_REQUIRE(same_node.latency == 0);
        if (ucx_leaves_distances_to_others()) {
            GAUDI_CHILD_REQUIRE(two_nodes.latency > same_node.latency);
            GAUDI_CHILD_REQUIRE(two_nodes.bandwidth < same_node.bandwidth);
        }
        GAUDI_CHILD_REQUIRE(two_nodes.latency == distance(2, 1).latency);
        GAUDI_CHILD_REQUIRE(unknown.latency == same_node.latency);
        GAUDI_CHILD_REQUIRE(distance(2, 2).latency == 0);
    }
    return 0;
}

TEST_IN_CHILD(card_placement, is_anywhere_without_a_sysfs, box_with({}))
{
    const opened_domain md;
    uct_md_attr_t attr;
    ASSERT_EQ(UCS_OK, uct_md_query(md, &attr));
    for (unsigned cpu = 0; cpu < UCS_CPU_SETSIZE; ++cpu) {
        ASSERT_TRUE(
            (ucs_cpu_is_set(static_cast<int>(cpu), &attr.local_cpus) != 0));
    }
}

TEST_IN_CHILD(card_placement, on_a_node_that_is_not_there_does_no_harm,
              box_with({{"HLTHUNK_EMU_SYSFS", scratch_directory().path("sys")},
                        {"HLTHUNK_EMU_NUMA", "1000"}}))
{
    constexpr size_t size = 1'000'000; /* staged, in several chunks */
    const opened_domain md;
    transport tl(md);
    const device_buffer device(md, size);
    std::vector<char> from(size);
    std::vector<char> to(size);
    fill_pattern(from.data(), size, 7);
    tl.put(from.data(), size, device.remote());
    tl.get(to.data(), size, device.remote());
    ASSERT_TRUE(from == to);
}

} // namespace gaudi::test
