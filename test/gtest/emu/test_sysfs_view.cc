/* SPDX-License-Identifier: BSD-3-Clause */
/* The sysfs that the software Gaudi shows. Every case is a child. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"
#include "common/scratch.h"

#include <map>
#include <memory>

#include <unistd.h>

using namespace gaudi::test;

namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

GAUDI_CHILD(shows_a_sysfs)
{
    GAUDI_CHILD_REQUIRE(hl().hlthunk_sys_sysfs() != nullptr);
    return 0;
}

GAUDI_CHILD(shows_no_sysfs)
{
    GAUDI_CHILD_REQUIRE(hl().hlthunk_sys_sysfs() == nullptr);
    return 0;
}

GAUDI_CHILD(opens_a_card)
{
    const own_card card;
    return 0;
}

class sysfs_view : public ::testing::Test {
protected:
    child_result show(const char *child, environment more = {}) const
    {
        more.emplace_back("HLTHUNK_EMU_SYSFS", root);
        return run_child(child, {more, -1});
    }

    [[nodiscard]] std::string attribute(unsigned card, const char *name) const
    {
        return read_file(root + "/class/accel/accel" + std::to_string(card) +
                         "/device/" + name);
    }

    /* Names, contents and targets of all there is. */
    [[nodiscard]] std::map<std::string, std::string> snapshot() const
    {
        std::map<std::string, std::string> all;
        for (const auto &entry : fs::recursive_directory_iterator(root)) {
            const std::string path = entry.path().string();
            all[path] = entry.is_symlink() ? fs::read_symlink(path).string()
                        : entry.is_regular_file() ? read_file(path)
                                                  : "";
        }
        return all;
    }

    const scratch_directory files;
    const std::string root = files.path("a/sys");
};

TEST_F(sysfs_view, looks_like_the_kernels)
{
    ASSERT_EQ(0, show("shows_a_sysfs",
                      {{"HLTHUNK_EMU_DEVICES", "3"}, {"HLTHUNK_EMU_NUMA", "0"}})
                     .exit_code);
    for (unsigned i = 0; i < 3; ++i) {
        EXPECT_EQ("0x1da3\n", attribute(i, "vendor"));
        EXPECT_EQ("0x1020\n", attribute(i, "device"));
        EXPECT_EQ("0x120000\n", attribute(i, "class"));
        EXPECT_EQ("0\n", attribute(i, "numa_node"));
        EXPECT_EQ(bus_id(i) + "\n", attribute(i, "pci_addr"));
        EXPECT_EQ(std::to_string(i) + "\n", attribute(i, "module_id"));
        EXPECT_EQ("GAUDI2\n", attribute(i, "device_type"));
        EXPECT_EQ("Operational\n", attribute(i, "status"));
        EXPECT_TRUE(fs::equivalent(root + "/class/accel/accel" +
                                       std::to_string(i) + "/device",
                                   root + "/bus/pci/devices/" + bus_id(i)));
    }
    EXPECT_FALSE(fs::exists(root + "/class/accel/accel3"));
    const std::string near_0 =
        read_file("/sys/devices/system/node/node0/cpulist");
    if (!near_0.empty()) {
        EXPECT_EQ(near_0, attribute(0, "local_cpulist"));
    }
}

TEST_F(sysfs_view, spreads_cards_over_the_nodes_of_the_machine)
{
    ASSERT_EQ(0, show("shows_a_sysfs").exit_code);
    int last = 0;
    for (unsigned i = 0; i < 8; ++i) {
        const int node = std::stoi(attribute(i, "numa_node"));
        EXPECT_GE(node, (i == 0) ? -1 : last);
        EXPECT_TRUE((node < 0) || fs::exists("/sys/devices/system/node/node" +
                                             std::to_string(node)));
        last = node;
    }
}

TEST_F(sysfs_view, cards_of_an_unknown_node_are_near_all)
{
    ASSERT_EQ(0, show("shows_a_sysfs", {{"HLTHUNK_EMU_NUMA", "-1"}}).exit_code);
    for (unsigned i = 0; i < 8; ++i) {
        EXPECT_EQ("-1\n", attribute(i, "numa_node"));
        EXPECT_EQ(read_file("/sys/devices/system/cpu/online"),
                  attribute(i, "local_cpulist"));
    }
}

TEST_F(sysfs_view, is_there_once_a_card_was_opened)
{
    ASSERT_EQ(0, show("opens_a_card").exit_code);
    EXPECT_TRUE(fs::exists(root + "/class/accel/accel7/device/vendor"));
}

TEST_F(sysfs_view, is_the_same_again)
{
    ASSERT_EQ(0, show("shows_a_sysfs").exit_code);
    const auto first = snapshot();
    ASSERT_EQ(0, show("shows_a_sysfs").exit_code);
    EXPECT_EQ(first, snapshot());
}

TEST_F(sysfs_view, is_whole_for_each_of_many_processes)
{
    const scratch_directory reference;
    ASSERT_EQ(0, run_child("shows_a_sysfs",
                           {{{"HLTHUNK_EMU_SYSFS", reference.path("")}}, -1})
                     .exit_code);
    std::vector<std::unique_ptr<child_process>> all;
    for (unsigned i = 0; i < 8; ++i) {
        all.push_back(std::make_unique<child_process>(
            "reads_the_sysfs",
            child_options{{{"HLTHUNK_EMU_SYSFS", root}}, -1}));
    }
    for (auto &one : all) {
        const child_result result = one->wait();
        EXPECT_EQ(0, result.exit_code) << result.error;
    }
    EXPECT_EQ(
        std::distance(fs::recursive_directory_iterator(reference.path("")), {}),
        std::distance(fs::recursive_directory_iterator(root), {}))
        << "nothing of the work is left";
}

GAUDI_CHILD(reads_the_sysfs)
{
    const char *root = hl().hlthunk_sys_sysfs();
    GAUDI_CHILD_REQUIRE(root != nullptr);
    for (unsigned i = 0; i < 8; ++i) {
        const std::string card =
            std::string(root) + "/bus/pci/devices/" + bus_id(i);
        GAUDI_CHILD_REQUIRE(read_file(card + "/pci_addr") == bus_id(i) + "\n");
        GAUDI_CHILD_REQUIRE(!read_file(card + "/numa_node").empty());
        GAUDI_CHILD_REQUIRE(!read_file(card + "/local_cpulist").empty());
    }
    return 0;
}

TEST_F(sysfs_view, of_another_box_is_refused)
{
    ASSERT_EQ(0, show("shows_a_sysfs").exit_code);
    const auto first = snapshot();
    const child_result other =
        show("shows_no_sysfs", {{"HLTHUNK_EMU_DEVICES", "2"}});
    EXPECT_EQ(0, other.exit_code);
    EXPECT_THAT(other.error, HasSubstr("shows another box already"));
    EXPECT_EQ(first, snapshot());
}

TEST_F(sysfs_view, says_when_it_cannot_be_made)
{
    (void)files.file("a", "a file is in the way");
    const child_result result = show("shows_no_sysfs");
    EXPECT_EQ(0, result.exit_code);
    EXPECT_THAT(result.error, HasSubstr("HLTHUNK_EMU_SYSFS='" + root +
                                        "' cannot be filled: Not a directory"));
    EXPECT_EQ(0, show("opens_a_card").exit_code) << "the box works without";
}

TEST(sysfs_settings, no_folder_is_needed)
{
    EXPECT_EQ(0, run_child("shows_no_sysfs").exit_code);
    EXPECT_EQ(0, run_child("shows_no_sysfs", {{{"HLTHUNK_EMU_SYSFS", ""}}, -1})
                     .exit_code);
}

TEST(sysfs_settings, a_bad_value_leaves_the_box_empty)
{
    for (const auto &[name, value] : environment{
             {"HLTHUNK_EMU_NUMA", "0,1"},
             {"HLTHUNK_EMU_NUMA", "0,"},
             {"HLTHUNK_EMU_NUMA", "-2"},
             {"HLTHUNK_EMU_NUMA", "1024"},
             {"HLTHUNK_EMU_NUMA", "a"},
             {"HLTHUNK_EMU_NUMA", "0 1"},
             {"HLTHUNK_EMU_SYSFS", "relative/path"},
         }) {
        const child_result result =
            run_child("has_no_cards_and_no_sysfs", {{{name, value}}, -1});
        EXPECT_EQ(0, result.exit_code) << name << "=" << value;
        EXPECT_THAT(result.error, HasSubstr("hlthunk-emu: " + name + "='" +
                                            value + "' is not "));
    }
}

GAUDI_CHILD(has_no_cards_and_no_sysfs)
{
    GAUDI_CHILD_REQUIRE(
        hl().hlthunk_get_device_count(HLTHUNK_DEVICE_DONT_CARE) == 0);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_sys_sysfs() == nullptr);
    return 0;
}

TEST(sysfs_settings, cards_of_nodes_that_are_not_there_work)
{
    EXPECT_EQ(
        0, run_child("copies_on_a_card", {{{"HLTHUNK_EMU_NUMA", "1000"}}, -1})
               .exit_code);
}

GAUDI_CHILD(copies_on_a_card)
{
    own_card card;
    const uint64_t memory  = card.allocate_mapped(device_page());
    const std::string text = "some bytes";
    std::string back(text.size(), '\0');
    const auto bytes = static_cast<uint32_t>(text.size());
    card.write(memory, text.data(), bytes);
    card.read(back.data(), memory, bytes);
    GAUDI_CHILD_REQUIRE(back == text);

    /* Nobody polls: the work is the engine threads'. */
    card.start({card.copy_chunk(edma0, memory + 100, memory, bytes)});
    GAUDI_CHILD_REQUIRE(eventually(
        [&] { return card.counters().device_to_device_bytes == bytes; }));
    return 0;
}

} // namespace
