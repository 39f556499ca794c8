/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways between cards: what the settings say, and what a sysfs shows. */
#include "hlthunk_shim/cards/routes.h"

#include "common/scratch.h"

#include <gmock/gmock.h>

#include <filesystem>

namespace gaudi::test {

using shim::peer_to_peer;
using shim::wire;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

namespace fs = std::filesystem;

constexpr char card[] = "0000:19:00.0";
constexpr char peer[] = "0000:1a:00.0";

/* Bits of the ACS control register. */
constexpr char validation          = 0x01;
constexpr char request_redirect    = 0x04;
constexpr char upstream            = 0x10;
constexpr char completion_redirect = 0x08;
constexpr char egress_control      = 0x20;

std::string config_space(size_t bytes)
{
    std::string config(bytes, '\0');
    config.replace(0, 2, "\xa3\x1d");
    return config;
}

/* Of a PCIe function: an extended capability that is another, then ACS. */
std::string with_acs(char control)
{
    std::string config = config_space(0x1000);
    config.replace(0x100, 4, std::string("\x01\x00\x02\x14", 4));
    config.replace(0x140, 4, std::string("\x0d\x00\x01\x00", 4));
    config[0x146] = control;
    return config;
}

/* A sysfs of two cards. */
class pcie_paths : public ::testing::Test {
protected:
    /* way  Folders from that of the host bridge to that of the card, the
     * functions of which get a configuration space. */
    void place(const std::string &way, const std::string &config)
    {
        const fs::path folder = files.path("sys/devices/" + way);
        const fs::path link =
            files.path("sys/bus/pci/devices") / folder.filename();
        fs::create_directories(folder);
        fs::create_directories(link.parent_path());
        fs::create_directory_symlink(folder, link);
        (void)files.file("sys/devices/" + way + "/vendor", "0x1da3\n");
        for (fs::path at = folder; !at.filename().native().starts_with("pci");
             at          = at.parent_path()) {
            write(fs::relative(at, files.path("")) / "config", config);
        }
    }

    void write(const fs::path &name, const std::string &text)
    {
        fs::create_directories(fs::path(files.path(name)).parent_path());
        (void)files.file(name, text);
    }

    /* Both under one switch; the functions have the configuration. */
    void place_under_switch(const std::string &config = with_acs(0))
    {
        place(switch_port + "/0000:18:00.0/" + card, config);
        place(switch_port + "/0000:18:04.0/" + peer, config);
    }

    shim::pcie_path find(peer_to_peer wish = peer_to_peer::automatic)
    {
        return shim::find_pcie_path(files.path("sys"), card, peer, wish);
    }

    void expect_none(const std::string &why)
    {
        const shim::pcie_path found = find();
        EXPECT_FALSE(found.is_there);
        EXPECT_THAT(found.why, HasSubstr(why));
    }

    scratch_directory files;
    const std::string switch_port = "pci0000:16/0000:16:02.0/0000:17:00.0";
};

} // namespace

/* --- settings --------------------------------------------------------------*/

TEST(routes, are_taken_in_the_order_of_the_setting)
{
    std::vector<wire> order;
    EXPECT_EQ("", shim::parse_routes(shim::default_routes, order));
    EXPECT_THAT(order, ElementsAre(wire::ports, wire::pcie, wire::host));
    EXPECT_EQ("", shim::parse_routes("host,pcie", order));
    EXPECT_THAT(order, ElementsAre(wire::host, wire::pcie));
    EXPECT_STREQ("pcie", name_of(order.back()));
}

TEST(routes, are_refused_when_they_name_no_wire_or_one_twice)
{
    std::vector<wire> order = {wire::host};
    for (const char *wrong :
         {"", ",", "pcie,", ",pcie", "PCIE", "pcie host", "wire"}) {
        EXPECT_THAT(shim::parse_routes(wrong, order),
                    HasSubstr("is not ports, pcie or host"))
            << wrong;
    }
    EXPECT_EQ("'pcie' is listed twice",
              shim::parse_routes("pcie,host,pcie", order));
    EXPECT_THAT(order, ElementsAre(wire::host)) << "left as it was";
}

TEST_F(pcie_paths, are_what_the_owner_says)
{
    place_under_switch();
    EXPECT_TRUE(find().is_there);
    EXPECT_FALSE(find(peer_to_peer::no).is_there);
    EXPECT_EQ("UCX_GAUDI_IPC_P2P=n", find(peer_to_peer::no).why);
    const auto wished = shim::find_pcie_path("", card, peer, peer_to_peer::yes);
    EXPECT_TRUE(wished.is_there);
    EXPECT_EQ("UCX_GAUDI_IPC_P2P=y", wished.why);
}

TEST_F(pcie_paths, lead_from_a_card_to_itself)
{
    for (const auto wish :
         {peer_to_peer::automatic, peer_to_peer::yes, peer_to_peer::no}) {
        EXPECT_TRUE(shim::find_pcie_path("", card, card, wish).is_there);
    }
}

/* --- what sysfs shows ------------------------------------------------------*/

TEST_F(pcie_paths, lead_through_a_common_switch)
{
    place_under_switch();
    EXPECT_TRUE(find().is_there);
    EXPECT_EQ("they share the switch 0000:17:00.0", find().why);
}

TEST_F(pcie_paths, lead_through_switches_below_a_common_one)
{
    place(switch_port + "/0000:18:00.0/0000:20:00.0/0000:21:00.0/" + card,
          with_acs(0));
    place(switch_port + "/0000:18:04.0/" + peer, with_acs(0));
    EXPECT_TRUE(find().is_there);
    EXPECT_EQ("they share the switch 0000:17:00.0", find().why);
}

TEST_F(pcie_paths, lead_through_a_common_root_port)
{
    place(std::string("pci0000:16/0000:16:02.0/") + card, with_acs(0));
    place(std::string("pci0000:16/0000:16:02.0/") + peer, with_acs(0));
    EXPECT_TRUE(find().is_there);
    EXPECT_EQ("they share the root port 0000:16:02.0", find().why);
}

TEST_F(pcie_paths, do_not_lead_through_the_root_complex)
{
    for (const char *port : {"pci0000:16/0000:16:03.0/", "pci0000:97/"}) {
        fs::remove_all(files.path("sys"));
        place(std::string("pci0000:16/0000:16:02.0/") + card, with_acs(0));
        place(std::string(port) + peer, with_acs(0));
        expect_none("only the root complex joins them; set "
                    "UCX_GAUDI_IPC_P2P=y");
    }
}

TEST_F(pcie_paths, end_where_acs_redirects)
{
    place_under_switch();
    const std::string ports[] = {switch_port, switch_port + "/0000:18:00.0",
                                 switch_port + "/0000:18:04.0"};
    for (const std::string &port : ports) {
        const std::string config = "sys/devices/" + port + "/config";
        for (const char bit :
             {request_redirect, completion_redirect, egress_control}) {
            write(config, with_acs(bit));
            expect_none("ACS of " + fs::path(port).filename().string() +
                        " redirects between its ports");
        }
        write(config, with_acs(0));
    }
    EXPECT_TRUE(find().is_there);
}

TEST_F(pcie_paths, go_on_where_acs_only_checks_or_is_above)
{
    place_under_switch(with_acs(validation | upstream));
    write("sys/devices/pci0000:16/0000:16:02.0/config",
          with_acs(request_redirect));
    EXPECT_TRUE(find().is_there);
}

TEST_F(pcie_paths, go_on_where_there_is_no_acs)
{
    std::string circle = config_space(0x1000);
    circle.replace(0x100, 4, std::string("\x01\x00\x02\x10", 4));
    std::string nowhere = circle;
    nowhere[0x103]      = '\xff';
    for (const std::string &config :
         {config_space(0x100), config_space(0x1000), circle, nowhere}) {
        fs::remove_all(files.path("sys"));
        place_under_switch(config);
        EXPECT_TRUE(find().is_there);
    }
}

TEST_F(pcie_paths, are_not_known_to_users_that_see_half_of_the_configuration)
{
    place_under_switch();
    const std::string config =
        "sys/devices/" + switch_port + "/0000:18:04.0/config";
    write(config, config_space(64));
    expect_none("only root can read the ACS of 0000:18:04.0; ");
    fs::remove(files.path(config));
    expect_none("then set UCX_GAUDI_IPC_P2P=y");
}

TEST_F(pcie_paths, end_where_an_iommu_translates)
{
    place_under_switch();
    const std::string type =
        std::string("sys/bus/pci/devices/") + card + "/iommu_group/type";
    for (const char *translating : {"DMA", "DMA-FQ"}) {
        write(type, std::string(translating) + "\n");
        EXPECT_EQ(translating, shim::iommu_type(files.path("sys"), card));
        expect_none(std::string("the IOMMU translates (") + translating + ")");
    }
    write(type, "identity\n");
    EXPECT_TRUE(find().is_there);
}

TEST_F(pcie_paths, are_not_known_where_sysfs_does_not_show_both_cards)
{
    const std::string why = "sysfs does not show where they are; set "
                            "UCX_GAUDI_IPC_P2P=y";
    expect_none(why);
    EXPECT_THAT(
        shim::find_pcie_path("", card, peer, peer_to_peer::automatic).why,
        StartsWith(why));
    place_under_switch();
    write("sys/bus/pci/devices/" + std::string(peer) + "/vendor", "0x8086\n");
    expect_none(why);

    /* One that shows no tree. */
    fs::remove_all(files.path("sys"));
    for (const std::string bus_id : {card, peer}) {
        write("sys/bus/pci/devices/" + bus_id + "/vendor", "0x1da3\n");
        write("sys/bus/pci/devices/" + bus_id + "/config", with_acs(0));
    }
    expect_none(why);
}

} // namespace gaudi::test
