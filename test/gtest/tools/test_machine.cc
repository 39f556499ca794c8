/* SPDX-License-Identifier: BSD-3-Clause */
/* What the launcher reads of a machine, in one made of files. */
#include "launcher/info.h"

#include "common/scratch.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <cstdlib>

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char fake_driver[]  = GAUDI_TOOLS_DIR "/libfake_driver.so";
constexpr uid_t nobody        = 65534;
constexpr gid_t nobodys_group = 4200000001; /* has no name */

/* Set in this process for a while. */
class scoped_variable {
public:
    scoped_variable(const char *name, const std::string &value) : name_(name)
    {
        setenv(name, value.c_str(), 1);
    }
    ~scoped_variable() { unsetenv(name_); }
    scoped_variable(const scoped_variable &)            = delete;
    scoped_variable &operator=(const scoped_variable &) = delete;

private:
    const char *const name_;
};

class made_up_machine : public ::testing::Test {
protected:
    made_up_machine()
        : where{files.path("dev"), files.path("proc"), files.path("sys")}
    {
        for (const std::string &directory :
             {where.dev, where.proc, where.sys}) {
            fs::create_directories(directory);
        }
    }

    void make(const std::string &name, const std::string &text)
    {
        fs::create_directories(fs::path(files.path(name)).parent_path());
        (void)files.file(name, text);
    }

    void make_node(const std::string &name, mode_t mode)
    {
        make(name, "");
        ASSERT_EQ(0, chmod(files.path(name).c_str(), mode));
        if (geteuid() == 0) {
            ASSERT_EQ(0, chown(files.path(name).c_str(), 0, nobodys_group));
        }
    }

    /* A process that has some files open. */
    void make_process(unsigned pid, const std::string &program,
                      const std::vector<std::string> &open_files)
    {
        const std::string directory = "proc/" + std::to_string(pid);
        make(directory + "/comm", program + "\n");
        fs::create_directories(files.path(directory + "/fd"));
        for (size_t i = 0; i < open_files.size(); ++i) {
            fs::create_symlink(open_files[i], files.path(directory + "/fd/" +
                                                         std::to_string(i)));
        }
    }

    /* As a user without privileges. */
    launcher::problems closed_nodes()
    {
        const bool is_root = (geteuid() == 0);
        if (is_root) {
            EXPECT_EQ(0, chmod(files.path(".").c_str(), 0755));
            EXPECT_EQ(0, seteuid(nobody));
        }
        launcher::problems found = launcher::find_closed_nodes(where);
        if (is_root) {
            EXPECT_EQ(0, seteuid(0));
        }
        return found;
    }

    [[nodiscard]] shim::report cards_of(const shim::driver &driver) const
    {
        shim::report found;
        shim::add_cards(driver, where, found);
        return found;
    }

    [[nodiscard]] std::string missing_with(const char *driver) const;

    static shim::report box(unsigned cards)
    {
        shim::report found;
        for (unsigned i = 0; i < cards; ++i) {
            found.cards.emplace_back();
            found.cards[i].name      = i;
            found.cards[i].module_id = i;
            found.cards[i].port_map  = "HLS-2";
        }
        return found;
    }

    /* A link of a card to another one. */
    static gaudi::shim::port_link link_to(unsigned card, bool is_up = true)
    {
        gaudi::shim::port_link made;
        made.is_up = is_up;
        made.state = is_up ? "LinkUp" : "Polling";
        made.end   = {true, card, 0};
        return made;
    }

    /* What is shown of the ways between the cards of a box. */
    static std::string pairs(shim::report found,
                             const std::string &routes = shim::default_routes)
    {
        EXPECT_TRUE(shim::add_pairs(routes, found));
        launcher::report shown;
        launcher::read_answer(shim::to_json(found), shown);
        const std::string text = launcher::to_text(shown);
        const size_t begin     = text.find("\npairs ") + 1;
        return (begin == 0) ? ""
                            : text.substr(begin, text.find("\ndriver ", begin) +
                                                     1 - begin);
    }

    scratch_directory files;
    const launcher::machine where;
};

std::string all_text(const launcher::problems &found)
{
    std::string text;
    for (const launcher::problem &one : found) {
        text += one.what + "\n" + one.fix + "\n";
    }
    return text;
}

std::string made_up_machine::missing_with(const char *driver) const
{
    const scoped_variable choice("UCX_GAUDI_DRIVER", driver);
    return all_text(
        launcher::make_report(launcher::find_installation(), where).missing);
}

} // namespace

TEST_F(made_up_machine, finds_the_processes_that_hold_nodes)
{
    make_process(17, "trainer", {"/dev/null", "/dev/accel/accel3"});
    make_process(4, "old\x1bone", {"/dev/hl0", "/dev/hl0"});
    make_process(30, "helper", {"/dev/accel/accel3"});
    constexpr char own_dev[] = "/memfd:hlthunk-emu/a/box";
    make_process(31, "emulating", {std::string(own_dev) + "/accel2 (deleted)"});
    make_process(32, "listing", {"/dev/accel/accel_controlD3"});
    make("proc/self/comm", "no process");

    const shim::holders found    = shim::find_holders("", where.proc);
    const shim::holders emulated = shim::find_holders(own_dev, where.proc);
    EXPECT_EQ("pid 17 (trainer), pid 30 (helper)",
              shim::describe(found.at("/dev/accel/accel3")));
    EXPECT_EQ("pid 4 (old?one)", shim::describe(found.at("/dev/hl0")));
    EXPECT_EQ("pid 31 (emulating)",
              shim::describe(
                  emulated.at("/memfd:hlthunk-emu/a/box/accel2 (deleted)")));
    EXPECT_EQ(geteuid(), found.at("/dev/hl0").at(0).user);
    EXPECT_EQ(0u, found.count("/dev/null"));
    EXPECT_EQ(0u, shim::find_holders("", files.path("no-proc")).size());
}

TEST_F(made_up_machine, tells_whose_a_card_is)
{
    using shim::card_state;
    using shim::find_state;

    const std::vector<shim::holder> mine   = {{5, 1000, "a"}};
    const std::vector<shim::holder> theirs = {{6, 1001, "b"}};
    EXPECT_EQ(card_state::free, find_state(false, {}, 1000));
    EXPECT_EQ(card_state::busy, find_state(true, {}, 1000));
    EXPECT_EQ(card_state::unknown, find_state(std::nullopt, {}, 1000));
    EXPECT_EQ(card_state::ours, find_state(true, mine, 1000));
    EXPECT_EQ(card_state::ours, find_state(std::nullopt, mine, 1000));
    EXPECT_EQ(card_state::busy, find_state(true, theirs, 1000));
    EXPECT_EQ(card_state::busy, find_state(std::nullopt, theirs, 1000));
}

TEST_F(made_up_machine, shows_cards_with_their_holders_and_numa_nodes)
{
    const shim::driver driver(fake_driver);
    ASSERT_EQ("", driver.reason());
    make_node("dev/accel/accel0", 0666);
    make("sys/bus/pci/devices/00ff:19:00.0/vendor", "0x1da3\n");
    make("sys/bus/pci/devices/00ff:19:00.0/numa_node", "1\n");
    make_process(17, "trainer", {"/dev/accel/accel0"});

    const shim::report list = cards_of(driver);
    ASSERT_EQ(1u, list.cards.size());
    EXPECT_EQ(shim::card_state::ours, list.cards[0].state);
    EXPECT_EQ("pid 17 (trainer)", shim::describe(list.cards[0].held_by));
    EXPECT_EQ(1u, list.cards[0].numa_node);
    EXPECT_TRUE(list.cards[0].usable);
    EXPECT_EQ(0u, list.missing.size());
}

TEST_F(made_up_machine, does_not_count_on_a_card_whose_node_is_closed)
{
    make("dev/accel", ""); /* closed to root, too */
    const shim::driver driver(fake_driver);
    const shim::report list = cards_of(driver);
    ASSERT_EQ(1u, list.cards.size());
    EXPECT_FALSE(list.cards[0].usable);
}

TEST_F(made_up_machine, names_the_nodes_and_the_group_that_may_open_them)
{
    make_node("dev/accel/accel0", 0660);
    make_node("dev/accel/accel_controlD0", 0660);
    make_node("dev/hl7", 0600);
    make_node("dev/accel/accel1", 0666);
    make_node("dev/hlog", 0000);
    if (geteuid() != 0) {
        /* Its owner may open it otherwise. */
        for (const char *name :
             {"dev/accel/accel0", "dev/accel/accel_controlD0", "dev/hl7"}) {
            make_node(name, 0000);
        }
    }
    const launcher::problems found = closed_nodes();
    const std::string text         = all_text(found);
    EXPECT_THAT(text, HasSubstr(files.path("dev/accel/accel0")));
    EXPECT_THAT(text, Not(HasSubstr("accel1")));
    EXPECT_THAT(text, Not(HasSubstr("hlog")));
    EXPECT_EQ(1u, found.size());
    if (geteuid() == 0) {
        EXPECT_THAT(text, HasSubstr("accel0 and 2 more\njoin the group "
                                    "4200000001 (usermod -aG 4200000001 "));
    }
}

TEST_F(made_up_machine, leaves_the_nodes_of_other_accelerators_alone)
{
    make_node("dev/accel/accel0", 0000);
    make("sys/class/accel/accel0/device/vendor", "0x8086\n");
    EXPECT_EQ("", all_text(closed_nodes()));
    make("sys/class/accel/accel0/device/vendor", "0x1da3\n");
    EXPECT_THAT(all_text(closed_nodes()), HasSubstr("accel0"));
}

TEST_F(made_up_machine, is_explained_without_a_library_or_a_node)
{
    make("sys/bus/pci/devices/00ff:19:00.0/vendor", "0x1da3\n");
    EXPECT_THAT(missing_with("auto"),
                ContainsRegex("1 Gaudi card.*\n.*modprobe habanalabs"));
    {
        const scoped_variable none("FAKE_CARDS", "0");
        EXPECT_THAT(missing_with(fake_driver),
                    ContainsRegex("1 Gaudi card.*\n.*modprobe habanalabs"));
    }
    make_node("dev/accel/accel0", 0666);
    const scoped_variable none("FAKE_CARDS", "0");
    EXPECT_THAT(missing_with(fake_driver), ContainsRegex("no card\n.*dmesg"));
}

/* --- ways between cards ----------------------------------------------------*/

TEST_F(made_up_machine, is_told_that_its_iommu_translates)
{
    const scoped_variable three("FAKE_CARDS", "3");
    const shim::driver driver(fake_driver);
    const std::string function = "sys/bus/pci/devices/00ff:";
    make(function + "19:00.0/iommu_group/type", "DMA\n");
    make(function + "1a:00.0/iommu_group/type", "identity\n");
    make(function + "1b:00.0/iommu_group/type", "DMA\n");
    const shim::report list = cards_of(driver);
    EXPECT_THAT(all_text(list.missing),
                ContainsRegex("card 0 \\(00ff:19:00.0\\), 2 "
                              "\\(00ff:1b:00.0\\).*IOMMU.*\n.*iommu=pt"));
    EXPECT_EQ(1u, list.missing.size());
    EXPECT_TRUE(list.cards[0].usable) << "it works on most machines";
}

TEST_F(made_up_machine, shows_pairs_that_differ_in_lines)
{
    EXPECT_THAT(pairs(box(8)), HasSubstr("host for all 28"));
    EXPECT_EQ("", pairs(box(1)));
    shim::report found   = box(3);
    found.cards[0].links = {link_to(2)};
    found.cards[1].links = {link_to(0)};
    EXPECT_THAT(pairs(found), ContainsRegex("pairs     host for 0-1 1-2: .*\n"
                                            "pairs     ports for 0-2: "));
}

TEST_F(made_up_machine, takes_the_ways_that_the_setting_names)
{
    shim::report linked   = box(2);
    linked.cards[0].links = {link_to(1)};
    struct {
        const char *setting;
        const char *with_links;
        const char *without;
    } const cases[] = {{"ports,host", "ports", "host"},
                       {"host,ports", "host", "host"},
                       {"host", "host", "host"},
                       {"ports", "ports", "none"}};
    for (const auto &each : cases) {
        SCOPED_TRACE(each.setting);
        EXPECT_THAT(pairs(linked, each.setting),
                    HasSubstr(std::string(each.with_links) + " for all 1"));
        EXPECT_THAT(pairs(box(2), each.setting),
                    HasSubstr(std::string(each.without) + " for all 1"));
    }
}

TEST_F(made_up_machine, takes_ports_where_a_link_is_up)
{
    shim::report found   = box(3);
    found.cards[0].links = {link_to(1), link_to(1, false), link_to(1),
                            link_to(2, false)};
    found.cards[1].links = {link_to(0)};
    const auto ways      = [](shim::report of) {
        EXPECT_TRUE(shim::add_pairs(shim::default_routes, of));
        std::vector<std::string> names;
        for (const auto &pair : of.pairs) {
            names.emplace_back(pair.name());
        }
        return names;
    };
    EXPECT_THAT(ways(found), ::testing::ElementsAre("ports", "host", "host"));
    found.cards[0].links.back().state.clear(); /* sysfs does not tell */
    EXPECT_THAT(ways(found), ::testing::ElementsAre("ports", "ports", "host"));
    found.no_ports = "no libhbl.so";
    EXPECT_THAT(ways(found), ::testing::Each("host"));
}

TEST_F(made_up_machine, leaves_out_pairs_of_hidden_cards)
{
    shim::report found = box(3);
    found.cards[1].name.reset();
    EXPECT_TRUE(shim::add_pairs(shim::default_routes, found));
    ASSERT_EQ(1u, found.pairs.size());
    EXPECT_THAT(found.pairs[0].pairs,
                ::testing::ElementsAre(std::pair{0u, 2u}));
}

} // namespace gaudi::test
