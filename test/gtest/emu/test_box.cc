/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings. They are read once per process, so every case is a child. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <tuple>

using namespace gaudi::test;

namespace {

child_result run_with(const char *child, environment settings)
{
    return run_child(child, {std::move(settings)});
}

GAUDI_CHILD(opens_every_card_of_the_box)
{
    const auto expected = static_cast<unsigned>(
        std::strtoul(std::getenv("HLTHUNK_EMU_DEVICES"), nullptr, 10));
    GAUDI_CHILD_REQUIRE(
        hl().hlthunk_get_device_count(HLTHUNK_DEVICE_DONT_CARE) ==
        static_cast<int>(expected));

    std::set<std::string> ids;
    for (unsigned i = 0; i < expected; ++i) {
        const int fd = hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, nullptr);
        GAUDI_CHILD_REQUIRE(fd >= 0);
        char id[13];
        GAUDI_CHILD_REQUIRE(
            hl().hlthunk_get_pci_bus_id_from_fd(fd, id, sizeof(id)) == 0);
        GAUDI_CHILD_REQUIRE(id == bus_id(i));
        ids.insert(id);
        const auto info = info_of(fd);
        GAUDI_CHILD_REQUIRE(info.module_id == i);
    }
    GAUDI_CHILD_REQUIRE(ids.size() == expected);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, nullptr) ==
                        -1);
    GAUDI_CHILD_REQUIRE(errno == EBUSY);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE,
                                          bus_id(expected).c_str()) == -EINVAL);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_open_control(static_cast<int>(expected),
                                                  nullptr) == -ENOENT);
    return 0;
}

GAUDI_CHILD(finds_no_cards)
{
    GAUDI_CHILD_REQUIRE(
        hl().hlthunk_get_device_count(HLTHUNK_DEVICE_DONT_CARE) == 0);
    errno = 0;
    GAUDI_CHILD_REQUIRE(hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, nullptr) ==
                        -1);
    GAUDI_CHILD_REQUIRE(errno == ENOENT);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE,
                                          bus_id(0).c_str()) == -EINVAL);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_open_control(0, nullptr) == -ENOENT);
    return 0;
}

/* Says how much memory a card has, in device pages. */
GAUDI_CHILD(fills_a_card)
{
    own_card card;
    const auto info = info_of(card.fd());
    GAUDI_CHILD_REQUIRE(info.dram_size % device_page() == 0);
    GAUDI_CHILD_REQUIRE(info.dram_base_address == 0x1001000000000000 +
                                                      info.reserved_dram_size +
                                                      info.dram_size);
    for (uint64_t done = 0; done < info.dram_size; done += device_page()) {
        GAUDI_CHILD_REQUIRE(card.allocate(device_page()) != 0);
    }
    GAUDI_CHILD_REQUIRE(
        hl().hlthunk_device_memory_alloc(card.fd(), 1, 0, false, true) == 0);
    GAUDI_CHILD_REQUIRE(errno == ENOMEM);
    return static_cast<int>(info.dram_size / device_page());
}

GAUDI_CHILD(makes_a_mistake)
{
    own_card card;
    GAUDI_CHILD_REQUIRE(unmap(card, 0x1234) == -EINVAL);
    return 0;
}

TEST(emu_box, has_as_many_cards_as_it_is_told)
{
    for (const char *devices : {"1", "8", "9", "64"}) {
        const child_result result = run_with("opens_every_card_of_the_box",
                                             {{"HLTHUNK_EMU_DEVICES", devices},
                                              {"HLTHUNK_EMU_DRAM_PAGE", "48M"},
                                              {"HLTHUNK_EMU_HBM", "96M"}});
        EXPECT_EQ(result.exit_code, 0) << devices << ": " << result.error;
        EXPECT_EQ(result.error, "");
    }
}

TEST(emu_box, the_ninth_card_is_in_another_pci_domain)
{
    EXPECT_EQ(bus_id(7), "0000:cd:00.0");
    EXPECT_EQ(bus_id(8), "0001:19:00.0");
}

/* The driver keeps one. */
TEST(emu_box, memory_is_as_large_as_it_is_told_in_whole_pages)
{
    const std::tuple<const char *, const char *, int> cases[] = {
        {"48M", "96M", 1},    {"48M", "100663296", 1},
        {"48M", "143M", 1},   {"48M", "144MB", 2},
        {"48M", "1G", 20},    {"50331648", "4194304K", 84},
        {"768M", "96G", 127}, {"640M", "80G", 127},
        {"8M", "1G", 127},    {"1G", "96G", 95}};
    for (const auto &[page, size, pages] : cases) {
        const child_result result =
            run_with("fills_a_card", {{"HLTHUNK_EMU_DRAM_PAGE", page},
                                      {"HLTHUNK_EMU_HBM", size}});
        EXPECT_EQ(result.exit_code, pages) << size << ": " << result.error;
    }
}

size_t count_lines(const std::string &text)
{
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(emu_box, a_bad_setting_is_reported_and_leaves_no_cards)
{
    const std::string long_name(65, 'n');
    const std::pair<const char *, const char *> cases[] = {
        {"HLTHUNK_EMU_DEVICES", ""},
        {"HLTHUNK_EMU_DEVICES", "0"},
        {"HLTHUNK_EMU_DEVICES", "65"},
        {"HLTHUNK_EMU_DEVICES", "-1"},
        {"HLTHUNK_EMU_DEVICES", "eight"},
        {"HLTHUNK_EMU_DEVICES", "8 cards"},
        {"HLTHUNK_EMU_DEVICES", "99999999999999999999999"},
        {"HLTHUNK_EMU_ENGINES", "17"},
        {"HLTHUNK_EMU_ENGINES", "-1"},
        {"HLTHUNK_EMU_ENGINES", "all"},
        {"HLTHUNK_EMU_HBM", "15M"},
        {"HLTHUNK_EMU_DRAM_PAGE", ""},
        {"HLTHUNK_EMU_DRAM_PAGE", "0"},
        {"HLTHUNK_EMU_DRAM_PAGE", "47M"},
        {"HLTHUNK_EMU_DRAM_PAGE", "1032M"},
        {"HLTHUNK_EMU_DRAM_PAGE", "huge"},
        {"HLTHUNK_EMU_EDMA", ""},
        {"HLTHUNK_EMU_EDMA", "-1"},
        {"HLTHUNK_EMU_EDMA", "0x100"},
        {"HLTHUNK_EMU_EDMA", "0xfg"},
        {"HLTHUNK_EMU_HBM", "2T"},
        {"HLTHUNK_EMU_HBM", "96X"},
        {"HLTHUNK_EMU_HBM", "18446744073709551615T"},
        {"HLTHUNK_EMU_FAULTS", "reset"},
        {"HLTHUNK_EMU_FAULTS", "reset=-1"},
        {"HLTHUNK_EMU_FAULTS", "reset=4294967296"},
        {"HLTHUNK_EMU_FAULTS", "reset=1@64"},
        {"HLTHUNK_EMU_FAULTS", "reset=1@"},
        {"HLTHUNK_EMU_FAULTS", "reset=1,"},
        {"HLTHUNK_EMU_FAULTS", "fire=1"},
        {"HLTHUNK_EMU_FAULTS", "now=reset"},
        {"HLTHUNK_EMU_FAULTS", "open=EIO@8"},
        {"HLTHUNK_EMU_FAULTS", "route=abort"},
        {"HLTHUNK_EMU_FAULTS", "route=reset:3"},
        {"HLTHUNK_EMU_ASIC", "gaudi4"},
        {"HLTHUNK_EMU_ASIC", "gaudi"},
        {"HLTHUNK_EMU_ASIC", "gaudi2f"},
        {"HLTHUNK_EMU_ASIC", "gaudi2bc"},
        {"HLTHUNK_EMU_ASIC", "gaudi3b"},
        {"HLTHUNK_EMU_ASIC", "hl28"},
        {"HLTHUNK_EMU_ASIC", "hl225"},
        {"HLTHUNK_EMU_NODE", long_name.c_str()}};
    for (const auto &[name, value] : cases) {
        const child_result result = run_with("finds_no_cards", {{name, value}});
        EXPECT_EQ(result.exit_code, 0)
            << name << "=" << value << ": " << result.error;
        EXPECT_THAT(result.error, ::testing::HasSubstr(name));
        EXPECT_THAT(result.error, ::testing::HasSubstr(value));
        EXPECT_THAT(result.error, ::testing::HasSubstr("no cards"));
        EXPECT_EQ(count_lines(result.error), 1u) << result.error;
    }
}

TEST(emu_box, every_bad_setting_is_reported_once)
{
    const child_result result =
        run_with("finds_no_cards", {{"HLTHUNK_EMU_DEVICES", "none"},
                                    {"HLTHUNK_EMU_ENGINES", "many"}});
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_EQ(count_lines(result.error), 2u) << result.error;
}

TEST(emu_box, an_empty_text_is_no_setting)
{
    environment empty;
    for (const char *name : {"ASIC", "NODE", "IMPORT", "NUMA", "FAULTS",
                             "SYSFS", "TIMING", "LOG"}) {
        empty.emplace_back(std::string("HLTHUNK_EMU_") + name, "");
    }
    empty.emplace_back("HLTHUNK_EMU_DEVICES", "1");
    const child_result result = run_with("opens_every_card_of_the_box", empty);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_EQ(result.error, "");
}

TEST(emu_box, faults_are_of_cards_that_it_has)
{
    const child_result result =
        run_with("finds_no_cards", {{"HLTHUNK_EMU_DEVICES", "2"},
                                    {"HLTHUNK_EMU_FAULTS", "open=EIO@2"}});
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_THAT(result.error, ::testing::HasSubstr("'2' is none of 2 cards"));
    EXPECT_TRUE(child_passes("opens_every_card_of_the_box",
                             {{{"HLTHUNK_EMU_DEVICES", "2"},
                               {"HLTHUNK_EMU_FAULTS", "open#99=EIO@1"}}}));
}

TEST(emu_box, a_name_of_64_characters_is_one)
{
    const std::string name(64, 'n');
    EXPECT_TRUE(child_passes("opens_every_card_of_the_box",
                             {{{"HLTHUNK_EMU_NODE", name},
                               {"HLTHUNK_EMU_DEVICES", "64"},
                               {"HLTHUNK_EMU_DRAM_PAGE", "48M"},
                               {"HLTHUNK_EMU_HBM", "96M"}}}));
}

TEST(emu_box, explains_errors_when_asked_to)
{
    child_result result =
        run_with("makes_a_mistake", {{"HLTHUNK_EMU_LOG", "1"}});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.error, ::testing::HasSubstr("accel0: unmap of 0x1234"));

    for (const char *off : {"", "0"}) {
        result = run_with("makes_a_mistake", {{"HLTHUNK_EMU_LOG", off}});
        EXPECT_EQ(result.exit_code, 0);
        EXPECT_EQ(result.error, "");
    }
}

/* --- faults --------------------------------------------------------------- */

GAUDI_CHILD(opens_cards_in_reset)
{
    GAUDI_CHILD_REQUIRE(open_card(0) == -EAGAIN);
    GAUDI_CHILD_REQUIRE(open_card(0) == -EAGAIN);
    GAUDI_CHILD_REQUIRE(open_card(1) == -EAGAIN);
    const int fd = open_card(0);
    GAUDI_CHILD_REQUIRE(fd >= 0);
    GAUDI_CHILD_REQUIRE(open_card(0) == -EBUSY);
    GAUDI_CHILD_REQUIRE(open_card(1) >= 0);
    GAUDI_CHILD_REQUIRE(open_card(2) >= 0);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_close(fd) == 0);
    GAUDI_CHILD_REQUIRE(open_card(0) >= 0);
    return 0;
}

TEST(emu_box, the_first_opens_of_a_card_find_it_in_reset_if_told)
{
    for (const char *faults :
         {"reset=2@0,reset=1@1", "reset=1,reset=2@0,reset=0@2"}) {
        EXPECT_TRUE(child_passes("opens_cards_in_reset",
                                 {{{"HLTHUNK_EMU_FAULTS", faults}}}))
            << faults;
    }
}

} // namespace
