/* SPDX-License-Identifier: BSD-3-Clause */
/* The cards of the box, as sysfs and control nodes show them. */
#include "hlthunk_shim/discovery/card_info.h"

#include "gtest/shim/fixture.h"

#include "common/child.h"
#include "common/scratch.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace gaudi::test {

using shim::card_info;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

namespace {

namespace fs = std::filesystem;

/* A sysfs made of files. */
class made_up_sysfs : public ::testing::Test {
protected:
    void make(const std::string &name, const std::string &text)
    {
        fs::create_directories(fs::path(files.path(name)).parent_path());
        (void)files.file(name, text + "\n");
    }

    void make_function(const std::string &bus_id, const std::string &node,
                       const std::string &cpus)
    {
        const std::string path = "sys/bus/pci/devices/" + bus_id;
        make(path + "/vendor", "0x1da3");
        make(path + "/numa_node", node);
        make(path + "/local_cpulist", cpus);
    }

    /* inner  Where the driver's attributes are: in the PCI function, or
     * beside. */
    void make_card(const std::string &device, const std::string &inner,
                   const std::string &bus_id)
    {
        make("sys/class/" + device + "/device/vendor", "0x1da3");
        make("sys/class/" + device + inner + "/pci_addr", bus_id);
        make("sys/class/" + device + inner + "/device_type", "GAUDI2");
        make_function(bus_id, "1", "4-7,12");
    }

    std::vector<card_info> list(bool any_node = true)
    {
        return shim::list_sysfs_cards(files.path("sys"),
                                      any_node ? "" : files.path("dev"));
    }

    scratch_directory files;
};

} // namespace

TEST_F(made_up_sysfs, shows_cards_of_new_kernels)
{
    make_card("accel/accel10", "/device", "0000:b3:00.0");
    make_card("accel/accel2", "/device", "0000:19:00.0");
    make("sys/class/accel/accel2/device/module_id", "5");

    const auto cards = list();
    ASSERT_EQ(2u, cards.size());
    EXPECT_EQ(0u, cards[0].index);
    EXPECT_EQ(2u, cards[0].number);
    EXPECT_EQ("0000:19:00.0", cards[0].bus_id);
    EXPECT_EQ(5u, cards[0].module_id);
    EXPECT_EQ(1u, cards[0].numa_node);
    EXPECT_EQ("4-7,12", cards[0].local_cpus);
    EXPECT_EQ("GAUDI2", cards[0].device_type);
    EXPECT_EQ(std::nullopt, cards[0].memory);
    EXPECT_EQ(1u, cards[1].index);
    EXPECT_EQ(10u, cards[1].number) << "files are ordered as numbers";
    EXPECT_EQ(std::nullopt, cards[1].module_id);
}

TEST_F(made_up_sysfs, shows_cards_of_old_kernels)
{
    make_card("habanalabs/hl0", "", "0000:19:00.0");
    make_card("habanalabs/hl_controlD0", "", "0000:19:00.0");
    const auto cards = list();
    ASSERT_EQ(1u, cards.size());
    EXPECT_EQ("0000:19:00.0", cards[0].bus_id);
    EXPECT_EQ("GAUDI2", cards[0].device_type);
}

TEST_F(made_up_sysfs, leaves_out_other_accelerators_and_cards_without_a_node)
{
    make_card("accel/accel0", "/device", "0000:19:00.0");
    make_card("accel/accel1", "/device", "0000:1a:00.0");
    make_card("accel/accel2", "/device", "0000:33:00.0");
    make("sys/class/accel/accel1/device/vendor", "0x8086");
    make("dev/accel/accel_controlD1", "");
    make("dev/accel/accel_controlD2", "");

    EXPECT_EQ(2u, list().size());
    const auto mine = list(false);
    ASSERT_EQ(1u, mine.size());
    EXPECT_EQ(0u, mine[0].index);
    EXPECT_EQ(2u, mine[0].number);
}

TEST_F(made_up_sysfs, is_no_help_when_a_card_does_not_tell_its_bus_id)
{
    make_card("accel/accel0", "/device", "0000:19:00.0");
    make_card("accel/accel1", "/device", "0000:1a:00.0");
    fs::remove(files.path("sys/class/accel/accel1/device/pci_addr"));
    EXPECT_THAT(list(), IsEmpty());
    EXPECT_THAT(shim::list_sysfs_cards(files.path("none"), ""), IsEmpty());
}

TEST_F(made_up_sysfs, is_believed_about_gaudi_cards_only)
{
    make_function("0000:01:00.0", "-1", "0-3");
    make_function("0000:02:00.0", "12", "0");
    make_function("0000:03:00.0", "1", "0");
    make("sys/bus/pci/devices/0000:03:00.0/vendor", "0x8086");

    const auto look = [&](const char *bus_id) {
        card_info card;
        card.bus_id = bus_id;
        shim::add_from_sysfs(files.path("sys"), card);
        return card;
    };
    EXPECT_EQ(std::nullopt, look("0000:01:00.0").numa_node);
    EXPECT_EQ("0-3", look("0000:01:00.0").local_cpus);
    EXPECT_EQ(12u, look("0000:02:00.0").numa_node);
    EXPECT_EQ(std::nullopt, look("0000:03:00.0").numa_node);
    EXPECT_EQ("", look("0000:03:00.0").local_cpus);
    EXPECT_EQ(std::nullopt, look("0000:04:00.0").numa_node);
}

TEST(cpu_list, is_read_as_the_kernel_writes_it)
{
    std::vector<unsigned> cpus;
    EXPECT_TRUE(shim::parse_cpu_list("", cpus));
    EXPECT_THAT(cpus, IsEmpty());
    EXPECT_TRUE(shim::parse_cpu_list("3", cpus));
    EXPECT_THAT(cpus, ElementsAre(3));
    EXPECT_TRUE(shim::parse_cpu_list("8,0-2,2-3", cpus));
    EXPECT_THAT(cpus, ElementsAre(0, 1, 2, 3, 8));
    EXPECT_TRUE(shim::parse_cpu_list("4095", cpus));
    for (const char *wrong :
         {",", "1,", ",1", "2-1", "-1", "1-", "a", "1-2-3", "0-4096"}) {
        EXPECT_FALSE(shim::parse_cpu_list(wrong, cpus)) << wrong;
        EXPECT_THAT(cpus, ElementsAre(4095)) << "left as it was";
    }
}

/* --- the software box ------------------------------------------------------*/

TEST(card_list, comes_from_control_nodes_where_there_is_no_sysfs)
{
    const auto cards = shim::list_cards(emulator::instance().driver);
    ASSERT_EQ(8u, cards.size());
    for (unsigned i = 0; i < 8; ++i) {
        EXPECT_EQ(i, cards[i].index);
        EXPECT_EQ(i, cards[i].number);
        EXPECT_EQ(bus_id(i), cards[i].bus_id);
        EXPECT_EQ(i, cards[i].module_id);
        EXPECT_EQ(std::nullopt, cards[i].numa_node);
        EXPECT_EQ("", cards[i].local_cpus);
        EXPECT_EQ("GAUDI2", cards[i].device_type);
        EXPECT_GT(cards[i].memory.value_or(0), 0u);
    }
}

TEST(card_list, is_the_same_from_the_emulated_sysfs)
{
    const scratch_directory files;
    const child_result child = run_child(
        "lists_cards_by_sysfs", {{{"HLTHUNK_EMU_SYSFS", files.path("sys")},
                                  {"HLTHUNK_EMU_DEVICES", "12"}},
                                 -1});
    EXPECT_EQ(0, child.exit_code) << child.error;
}

GAUDI_CHILD(lists_cards_by_sysfs)
{
    const char *root = hl().hlthunk_sys_sysfs();
    GAUDI_CHILD_REQUIRE(root == std::string(std::getenv("HLTHUNK_EMU_SYSFS")));
    /* The machine may have one node. */
    for (unsigned i = 0; i < 12; ++i) {
        const std::string file =
            std::string(root) + "/bus/pci/devices/" + bus_id(i) + "/numa_node";
        fs::remove(file);
        std::ofstream(file)
            << ((i == 11) ? "-1" : std::to_string(i / 6)) << "\n";
    }
    const auto cards = shim::list_cards(emulator::instance().driver);
    GAUDI_CHILD_REQUIRE(cards.size() == 12);
    const std::optional<unsigned> unknown;
    for (unsigned i = 0; i < 12; ++i) {
        GAUDI_CHILD_REQUIRE(cards[i].index == i);
        GAUDI_CHILD_REQUIRE(cards[i].number == i);
        GAUDI_CHILD_REQUIRE(cards[i].bus_id == bus_id(i));
        GAUDI_CHILD_REQUIRE(cards[i].module_id == i);
        GAUDI_CHILD_REQUIRE(cards[i].numa_node ==
                            ((i == 11) ? unknown : std::optional(i / 6)));
        GAUDI_CHILD_REQUIRE(!cards[i].local_cpus.empty());
        GAUDI_CHILD_REQUIRE(cards[i].device_type == "GAUDI2");
        GAUDI_CHILD_REQUIRE(!cards[i].memory.has_value());

        const int fd = hl().hlthunk_open_control(static_cast<int>(i), nullptr);
        const card_info by_driver =
            shim::describe_card(emulator::instance().driver, i, fd, bus_id(i));
        hl().hlthunk_close(fd);
        GAUDI_CHILD_REQUIRE(by_driver.module_id == cards[i].module_id);
        GAUDI_CHILD_REQUIRE(by_driver.numa_node == cards[i].numa_node);
        GAUDI_CHILD_REQUIRE(by_driver.local_cpus == cards[i].local_cpus);
        GAUDI_CHILD_REQUIRE(by_driver.device_type == cards[i].device_type);
        GAUDI_CHILD_REQUIRE(by_driver.memory.has_value());
    }
    return 0;
}

/* --- product variants ------------------------------------------------------*/

/* A Gaudi2 takes work by itself, a Gaudi3 through SynapseAI alone. */
GAUDI_CHILD(knows_the_card)
{
    const std::string name = std::getenv("HLTHUNK_EMU_ASIC");
    const bool is_gaudi2 =
        name.starts_with("gaudi2") || name.starts_with("hl288");
    const shim::driver &of = emulator::instance().driver;
    const int control      = hl().hlthunk_open_control(0, nullptr);
    GAUDI_CHILD_REQUIRE(control >= 0);
    const shim::card_check check = shim::check_card(of, control);
    hl().hlthunk_close(control);
    GAUDI_CHILD_REQUIRE(check.supported == is_gaudi2);
    GAUDI_CHILD_REQUIRE(check.takes_framework == !is_gaudi2);
    std::unique_ptr<shim::card> opened;
    GAUDI_CHILD_REQUIRE(of.open(bus_id(0), opened) ==
                        (is_gaudi2 ? 0 : -ENOTSUP));
    if (is_gaudi2) {
        for (const unsigned streams : opened->capabilities().streams) {
            GAUDI_CHILD_REQUIRE(streams > 0);
        }
    }
    return 0;
}

/* What the vendor's driver has device ids and revisions of. */
TEST(card_kinds, every_variant_is_taken_for_what_it_is_based_on)
{
    for (const char *name :
         {"gaudi2", "gaudi2b", "gaudi2c", "gaudi2d", "gaudi2e", "hl288",
          "hl288d", "hl288e", "gaudi3", "gaudi3d", "gaudi3e", "hl338", "hl338d",
          "hl338e"}) {
        const child_result child = run_child(
            "knows_the_card",
            {{{"HLTHUNK_EMU_ASIC", name}, {"HLTHUNK_EMU_DRAM_PAGE", "32M"}},
             -1});
        EXPECT_EQ(0, child.exit_code) << name << ": " << child.error;
        EXPECT_EQ("", child.error) << name;
    }
}

/* --- cards that nobody knows -----------------------------------------------*/

namespace {

/* The software cards, as something that is newer than this project. */
class unknown_cards : public shim::driver {
public:
    explicit unknown_cards(hlthunk_device_name taken_for)
        : driver(emulator_path(), {.unknown_card = taken_for})
    {
        const auto tell = [](int fd, hlthunk_hw_ip_info *info) {
            const int ret   = hl().hlthunk_get_hw_ip_info(fd, info);
            info->device_id = 0x4711;
            return ret;
        };
        const auto tell_name = [](int) { return HLTHUNK_DEVICE_INVALID; };
        redirect("hlthunk_get_hw_ip_info", reinterpret_cast<void *>(+tell));
        redirect("hlthunk_get_device_name_from_fd",
                 reinterpret_cast<void *>(+tell_name));
    }
};

} // namespace

TEST(unknown_card, is_refused_with_what_it_is_and_what_may_be_tried)
{
    const unknown_cards of(HLTHUNK_DEVICE_INVALID);
    std::unique_ptr<shim::card> opened;
    EXPECT_EQ(-ENOTSUP, of.open(bus_id(1), opened));
    const std::string why = shim::why_refused(of, bus_id(1));
    for (const char *word : {"0000:1a:00.0", "0x4711", "UCX_GAUDI_CARD_KIND"}) {
        EXPECT_THAT(why, ::testing::HasSubstr(word));
    }
    const int fd = hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, nullptr);
    EXPECT_EQ(-ENOTSUP, of.adopt(fd, opened));
    EXPECT_EQ(0, hl().hlthunk_close(fd));
}

TEST(unknown_card, is_used_as_the_kind_that_it_is_taken_for)
{
    const unknown_cards of(HLTHUNK_DEVICE_GAUDI2);
    std::unique_ptr<shim::card> opened;
    ASSERT_EQ(0, of.open(bus_id(0), opened));
    std::unique_ptr<shim::dma_queue> queue;
    EXPECT_EQ(
        0, opened->make_queue(shim::dma_direction::host_to_device, {}, queue));
}

} // namespace gaudi::test
