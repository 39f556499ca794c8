/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings. They are read once per process, so every case is a child. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <algorithm>
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
    for (const char *devices : {"1", "64"}) {
        const child_result result = run_with("opens_every_card_of_the_box",
                                             {{"HLTHUNK_EMU_DEVICES", devices},
                                              {"HLTHUNK_EMU_DRAM_PAGE", "48M"},
                                              {"HLTHUNK_EMU_HBM", "96M"}});
        EXPECT_EQ(result.exit_code, 0) << devices << ": " << result.error;
        EXPECT_EQ(result.error, "");
    }
}

/* The driver keeps one. */
TEST(emu_box, memory_is_as_large_as_it_is_told_in_whole_pages)
{
    const std::tuple<const char *, const char *, int> cases[] = {
        {"48M", "143MB", 1},
        {"50331648", "4194304K", 84},
        {"768M", "96G", 127},
        {"8M", "1G", 127}};
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
        {"HLTHUNK_EMU_DEVICES", "0"},
        {"HLTHUNK_EMU_DEVICES", "8 cards"},
        {"HLTHUNK_EMU_ENGINES", "17"},
        {"HLTHUNK_EMU_HBM", "15M"},
        {"HLTHUNK_EMU_HBM", "18446744073709551615T"},
        {"HLTHUNK_EMU_DRAM_PAGE", "47M"},
        {"HLTHUNK_EMU_EDMA", "0x100"},
        {"HLTHUNK_EMU_FAULTS", "reset"},
        {"HLTHUNK_EMU_FAULTS", "open=EIO@8"},
        {"HLTHUNK_EMU_ASIC", "gaudi2f"},
        {"HLTHUNK_EMU_IMPORT", "no"},
        {"HLTHUNK_EMU_NUMA", "0,"},
        {"HLTHUNK_EMU_SYSFS", "relative/path"},
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

} // namespace
