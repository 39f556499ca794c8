/* SPDX-License-Identifier: BSD-3-Clause */
/* The PCI tree of HLTHUNK_EMU_SYSFS, read as programs read that of Linux. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"
#include "common/scratch.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

using namespace gaudi::test;

namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;

/* Device/port types of the PCI Express capability. */
enum : unsigned { endpoint = 0, root_port = 4, upstream = 5, downstream = 6 };

constexpr unsigned express_id     = 0x10;
constexpr unsigned acs_id         = 0x0d;
constexpr unsigned redirects      = 0x1d; /* SV, RR, CR, UF */
constexpr unsigned cards_of_a_box = 8;

/* A function's configuration space. */
class config_file {
public:
    explicit config_file(const fs::path &function)
        : bytes_(read_file((function / "config").string()))
    {}

    [[nodiscard]] size_t size() const { return bytes_.size(); }

    [[nodiscard]] unsigned at(size_t offset, size_t bytes) const
    {
        unsigned value = 0;
        for (size_t i = 0; i < bytes; ++i) {
            value |= static_cast<unsigned>(
                         static_cast<uint8_t>(bytes_.at(offset + i)))
                     << (8 * i);
        }
        return value;
    }

    [[nodiscard]] unsigned type() const
    {
        EXPECT_NE(at(0x06, 2) & 0x10, 0u) << "has capabilities";
        for (size_t next = at(0x34, 1); next != 0; next = at(next + 1, 1)) {
            if (at(next, 1) == express_id) {
                return at(next + 2, 2) >> 4 & 0xf;
            }
        }
        ADD_FAILURE() << "no PCI Express";
        return endpoint;
    }

    /* Access control; none without the capability. */
    [[nodiscard]] std::optional<unsigned> acs() const
    {
        for (size_t next = 0x100; next != 0; next = at(next, 4) >> 20) {
            if ((at(next, 4) & 0xffff) == acs_id) {
                EXPECT_EQ(at(next + 4, 2) & redirects, redirects);
                return at(next + 6, 2);
            }
        }
        return std::nullopt;
    }

private:
    const std::string bytes_;
};

class pci_tree : public ::testing::Test {
protected:
    void show(const environment &more = {})
    {
        environment all = more;
        all.emplace_back("HLTHUNK_EMU_SYSFS", root);
        ASSERT_EQ(0, run_child("shows_a_sysfs", {all, -1}).exit_code);
    }

    [[nodiscard]] fs::path function(const std::string &address) const
    {
        return fs::canonical(root + "/bus/pci/devices/" + address);
    }

    /* The functions from the root port to a card. */
    [[nodiscard]] std::vector<fs::path> path_of(unsigned card) const
    {
        std::vector<fs::path> path;
        for (fs::path at = function(bus_id(card)); fs::exists(at / "class");
             at          = at.parent_path()) {
            path.insert(path.begin(), at);
        }
        return path;
    }

    [[nodiscard]] std::vector<unsigned> types_of(unsigned card) const
    {
        std::vector<unsigned> types;
        for (const fs::path &each : path_of(card)) {
            types.push_back(config_file(each).type());
        }
        return types;
    }

    /* How many of the functions above them two cards have in common. */
    [[nodiscard]] size_t common(unsigned card, unsigned other) const
    {
        const auto first  = path_of(card);
        const auto second = path_of(other);
        size_t count      = 0;
        while ((count < first.size()) && (count < second.size()) &&
               (first[count] == second[count])) {
            ++count;
        }
        return count;
    }

    /* What holds in every tree. */
    void expect_sound(unsigned cards = cards_of_a_box) const
    {
        std::map<std::string, unsigned> seen;
        for (unsigned card = 0; card < cards; ++card) {
            unsigned bus = 0;
            for (const fs::path &each : path_of(card)) {
                const std::string address = each.filename().string();
                const config_file config(each);
                ++seen[address];
                EXPECT_EQ(function(address), each);
                EXPECT_EQ(read_number(each / "vendor"), config.at(0, 2));
                EXPECT_EQ(read_number(each / "device"), config.at(2, 2));
                EXPECT_EQ(read_number(each / "class"), config.at(9, 3));
                const auto own = static_cast<unsigned>(
                    std::stoul(address.substr(5, 2), nullptr, 16));
                if (bus != 0) {
                    EXPECT_EQ(bus, own) << address;
                } else {
                    EXPECT_EQ("pci" + address.substr(0, 7),
                              each.parent_path().filename());
                }
                if (each.filename() == bus_id(card)) {
                    EXPECT_EQ("0x120000\n",
                              read_file((each / "class").string()));
                    break;
                }
                EXPECT_EQ("0x060400\n", read_file((each / "class").string()));
                EXPECT_EQ(1u, config.at(0x0e, 1));
                bus = config.at(0x19, 1);
                EXPECT_LT(own, bus);
                EXPECT_LE(bus, config.at(0x1a, 1));
                EXPECT_EQ(bus, read_number(each / "secondary_bus_number"));
            }
        }
        unsigned all = 0;
        for (const auto &entry :
             fs::directory_iterator(root + "/bus/pci/devices")) {
            EXPECT_EQ(1u, seen.count(entry.path().filename())) << entry;
            ++all;
        }
        EXPECT_EQ(all, seen.size());
    }

    [[nodiscard]] std::string group_of(unsigned card) const
    {
        const fs::path group =
            fs::canonical(function(bus_id(card)) / "iommu_group");
        EXPECT_EQ(function(bus_id(card)),
                  fs::canonical(group / "devices" / bus_id(card)));
        EXPECT_EQ(fs::path(root + "/kernel/iommu_groups"), group.parent_path());
        return group.filename();
    }

    static unsigned read_number(const fs::path &file)
    {
        return static_cast<unsigned>(
            std::stoul(read_file(file.string()), nullptr, 0));
    }

    const scratch_directory files;
    const std::string root = files.path("sys");
};

TEST_F(pci_tree, has_all_cards_below_one_switch)
{
    show();
    expect_sound();
    for (unsigned card = 0; card < cards_of_a_box; ++card) {
        EXPECT_THAT(types_of(card),
                    ElementsAre(root_port, upstream, downstream, endpoint));
        EXPECT_EQ((card == 0) ? 4u : 2u, common(0, card));
    }
    EXPECT_EQ("0000:16:01.0", path_of(0).front().filename());
    const auto path = path_of(3);
    EXPECT_EQ(0u, config_file(path[0]).acs());
    EXPECT_EQ(std::nullopt, config_file(path[1]).acs());
    EXPECT_EQ(0u, config_file(path[2]).acs());
    EXPECT_EQ(4096u, config_file(path[3]).size());
    EXPECT_FALSE(fs::exists(path[3] / "iommu_group"));
}

TEST_F(pci_tree, has_a_switch_for_each_group)
{
    show({{"HLTHUNK_EMU_P2P", "0-3,4-7"}});
    expect_sound();
    EXPECT_EQ(2u, common(0, 3));
    EXPECT_EQ(2u, common(4, 7));
    EXPECT_EQ(0u, common(3, 4));
}

TEST_F(pci_tree, has_cards_of_no_group_by_themselves)
{
    show({{"HLTHUNK_EMU_P2P", "1-3,0,6-7"}});
    expect_sound();
    EXPECT_EQ(2u, common(1, 3));
    EXPECT_EQ(0u, common(0, 1));
    EXPECT_EQ(0u, common(4, 5));
}

TEST_F(pci_tree, has_domains_of_eight_cards)
{
    show({{"HLTHUNK_EMU_DEVICES", "12"}});
    expect_sound(12);
    EXPECT_EQ(2u, common(8, 11));
    EXPECT_EQ(0u, common(7, 8));
}

TEST_F(pci_tree, shows_ports_that_redirect)
{
    show({{"HLTHUNK_EMU_PCI", "acs"}});
    expect_sound();
    const auto path = path_of(3);
    EXPECT_EQ(2u, common(0, 3));
    EXPECT_EQ(redirects, config_file(path[0]).acs());
    EXPECT_EQ(redirects, config_file(path[2]).acs());
}

TEST_F(pci_tree, has_a_root_port_for_each_card)
{
    show({{"HLTHUNK_EMU_PCI", "root"}});
    expect_sound();
    for (unsigned card = 0; card < cards_of_a_box; ++card) {
        EXPECT_THAT(types_of(card), ElementsAre(root_port, endpoint));
        EXPECT_EQ((card == 0) ? 2u : 0u, common(0, card));
    }
    EXPECT_EQ(path_of(0).front().parent_path(),
              path_of(1).front().parent_path())
        << "of one host bridge, which is no function";
}

TEST_F(pci_tree, hides_capabilities_from_users)
{
    show({{"HLTHUNK_EMU_PCI", "acs,user"}});
    expect_sound();
    for (const fs::path &each : path_of(0)) {
        EXPECT_EQ(64u, config_file(each).size());
    }
}

TEST_F(pci_tree, has_one_iommu_group_for_what_nothing_isolates)
{
    show({{"HLTHUNK_EMU_PCI", "iommu"}, {"HLTHUNK_EMU_P2P", "0-3,4-7"}});
    EXPECT_EQ(group_of(0), group_of(3));
    EXPECT_NE(group_of(0), group_of(4));
    EXPECT_EQ("DMA-FQ\n", read_file(root + "/kernel/iommu_groups/" +
                                    group_of(0) + "/type"));
}

TEST_F(pci_tree, has_an_iommu_group_for_each_card_below_ports_that_redirect)
{
    show({{"HLTHUNK_EMU_PCI", "acs,pt"}});
    for (unsigned card = 1; card < cards_of_a_box; ++card) {
        EXPECT_NE(group_of(0), group_of(card));
    }
    EXPECT_EQ("identity\n", read_file(root + "/kernel/iommu_groups/" +
                                      group_of(7) + "/type"));
}

TEST_F(pci_tree, of_another_box_is_told_apart)
{
    show();
    for (const char *other : {"acs", "root", "user", "iommu", "pt"}) {
        const child_result result = run_child(
            "shows_no_sysfs",
            {{{"HLTHUNK_EMU_SYSFS", root}, {"HLTHUNK_EMU_PCI", other}}, -1});
        EXPECT_EQ(0, result.exit_code) << other;
    }
}

TEST(pci_setting, other_values_leave_the_box_empty)
{
    for (const char *wrong : {"switch", ",acs", "acs root"}) {
        const child_result child =
            run_child("finds_no_cards", {{{"HLTHUNK_EMU_PCI", wrong}}});
        EXPECT_EQ(child.exit_code, 0) << child.error;
        EXPECT_THAT(child.error, ::testing::HasSubstr("is not a list of root"));
    }
}

} // namespace
