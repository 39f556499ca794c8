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

TEST_F(sysfs_view, cards_of_an_unknown_node_are_near_all)
{
    ASSERT_EQ(0, show("shows_a_sysfs", {{"HLTHUNK_EMU_NUMA", "-1"},
                                        {"HLTHUNK_EMU_DEVICES", "1"}})
                     .exit_code);
    EXPECT_EQ("-1\n", attribute(0, "numa_node"));
    EXPECT_EQ(read_file("/sys/devices/system/cpu/online"),
              attribute(0, "local_cpulist"));
}

TEST_F(sysfs_view, is_whole_for_each_of_many_processes)
{
    const auto options = [](const std::string &where) {
        return child_options{
            {{"HLTHUNK_EMU_SYSFS", where}, {"HLTHUNK_EMU_DEVICES", "2"}}, -1};
    };
    const scratch_directory reference;
    ASSERT_EQ(
        0, run_child("shows_a_sysfs", options(reference.path(""))).exit_code);
    std::vector<std::unique_ptr<child_process>> all;
    for (unsigned i = 0; i < 4; ++i) {
        all.push_back(
            std::make_unique<child_process>("reads_the_sysfs", options(root)));
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
    const std::string root = hl().hlthunk_sys_sysfs();
    for (unsigned i = 0; i < 2; ++i) {
        const std::string card = root + "/bus/pci/devices/" + bus_id(i);
        GAUDI_CHILD_REQUIRE(read_file(card + "/pci_addr") == bus_id(i) + "\n");
        GAUDI_CHILD_REQUIRE(!read_file(card + "/numa_node").empty());
        GAUDI_CHILD_REQUIRE(!read_file(card + "/local_cpulist").empty());
    }
    return 0;
}

TEST_F(sysfs_view, of_another_box_is_refused)
{
    ASSERT_EQ(0,
              show("shows_a_sysfs", {{"HLTHUNK_EMU_DEVICES", "1"}}).exit_code);
    const auto first = snapshot();
    const child_result other =
        show("shows_no_sysfs", {{"HLTHUNK_EMU_DEVICES", "2"}});
    EXPECT_EQ(0, other.exit_code);
    EXPECT_THAT(other.error, HasSubstr("HLTHUNK_EMU_SYSFS"));
    EXPECT_EQ(first, snapshot());
}

TEST_F(sysfs_view, says_when_it_cannot_be_made)
{
    (void)files.file("a", "a file is in the way");
    const child_result result = show("shows_no_sysfs");
    EXPECT_EQ(0, result.exit_code);
    EXPECT_THAT(result.error, HasSubstr("HLTHUNK_EMU_SYSFS='" + root));
    EXPECT_EQ(0, show("opens_a_card").exit_code) << "the box works without";
}

} // namespace
