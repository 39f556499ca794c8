/* ucx-gaudi info: what it shows, what it finds missing, its exit code. */
#include "gtest/tools/copied_installation.h"

#include "launcher/cards.h"
#include "launcher/nodes.h"

#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char late_ucx[]    = GAUDI_TOOLS_DIR "/late_ucx";
constexpr char fake_driver[] = GAUDI_TOOLS_DIR "/libfake_driver.so";
constexpr char old_driver[]  = GAUDI_TOOLS_DIR "/libold_driver.so";
constexpr char broken_driver[] =
    GAUDI_BUILD_DIR "/lib/stubs/libhlthunk_stub_no_required.so";
constexpr uid_t nobody        = 65534;
constexpr gid_t nobodys_group = 4200000001; /* has no name */

class info : public tools {
protected:
    [[nodiscard]] process_result look(const arguments &options     = {},
                                      const environment &variables = {}) const
    {
        arguments command = {launcher, "info"};
        command.insert(command.end(), options.begin(), options.end());
        return run(command, with(variables));
    }

    [[nodiscard]] process_result with_driver(const std::string &driver,
                                             environment variables = {}) const
    {
        variables["UCX_GAUDI_DRIVER"] = driver;
        return look({}, variables);
    }

    /* Exit code 1, and one problem of which both lines are as expected. */
    static void expect_missing(const process_result &result,
                               const std::string &what, const std::string &mend,
                               int code = 1)
    {
        EXPECT_TRUE(exited_with(code, result));
        EXPECT_THAT(result.output, HasSubstr("\nmissing   "));
        EXPECT_THAT(lines_with(result.output, "missing   "),
                    ::testing::Contains(HasSubstr(what)));
        EXPECT_THAT(lines_with(result.output, "to mend   "),
                    ::testing::Contains(HasSubstr(mend)));
    }

    /* The row of a card. */
    static std::string row(const process_result &result, unsigned index)
    {
        for (const std::string &line : lines_with(result.output, ":00.0 ")) {
            if (line.starts_with(std::to_string(index) + " ")) {
                return line;
            }
        }
        return "no such row in " + result.output;
    }
};

/* Parts of it, in a machine made of files. */
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

    scratch_directory files;
    const launcher::machine where;
};

std::string all_text(const launcher::problems &found)
{
    std::string text;
    for (const launcher::problem &one : found) {
        text += one.what + "\n" + one.mend + "\n";
    }
    return text;
}

} // namespace

/* --- what it shows ---------------------------------------------------------*/

TEST_F(info, lists_the_cards_of_the_software_box)
{
    const process_result result = look({"--emulate=3"});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(result.output,
                ContainsRegex("index +module +bus id +numa +HBM +free +state "
                              "+kind +held by"));
    for (unsigned i = 0; i < 3; ++i) {
        const std::string index = std::to_string(i);
        EXPECT_THAT(row(result, i),
                    ContainsRegex("^" + index + " +" + index +
                                  " +0000:[0-9a-f]{2}:00\\.0 +- +96\\.0GiB "
                                  "+96\\.0GiB +free +emulator +-$"));
    }
    EXPECT_EQ(3u, lines_with(result.output, " emulator ").size());
    EXPECT_THAT(result.output, Not(HasSubstr("missing")));
}

TEST_F(info, aligns_its_columns)
{
    const process_result result = look({"--emulate=12"});
    const std::string header    = lines_with(result.output, "bus id").at(0);
    for (unsigned i = 0; i < 12; ++i) {
        EXPECT_EQ(header.find("state"), row(result, i).find("free "));
        EXPECT_EQ(header.find("kind"), row(result, i).find("emulator"));
    }
}

TEST_F(info, shows_how_much_memory_there_is)
{
    const process_result result =
        look({"--emulate=1"}, {{"HLTHUNK_EMU_HBM", "96M"}});
    EXPECT_THAT(row(result, 0), ContainsRegex(" 96\\.0MiB +96\\.0MiB "));
}

TEST_F(info, has_as_many_cards_as_the_environment_says)
{
    const environment five = {{"HLTHUNK_EMU_DEVICES", "5"}};
    EXPECT_EQ(
        5u, lines_with(look({"--emulate"}, five).output, "emulator  -").size());
    EXPECT_EQ(8u, lines_with(look({"--emulate"}).output, "emulator  -").size());
    EXPECT_EQ(
        2u,
        lines_with(look({"--emulate=2"}, five).output, "emulator  -").size());
    EXPECT_EQ(
        5u,
        lines_with(with_driver("emulator", five).output, "emulator  -").size());
}

TEST_F(info, shows_the_ucx_and_the_driver_library)
{
    const process_result result = look({"--emulate"});
    EXPECT_THAT(
        result.output,
        ContainsRegex(
            "\nucx       " GAUDI_UCX_VERSION
            " at /.*libucp\\.so.* \\(the module is built for " GAUDI_UCX_VERSION
            "\\)\n"));
    EXPECT_THAT(result.output, HasSubstr(std::string("driver    ") + library +
                                         "/hlthunk-emu/libhl-thunk.so "
                                         "(UCX_GAUDI_DRIVER=emulator)\n"));
    EXPECT_THAT(result.output, HasSubstr(std::string("\nmodule    ") + library +
                                         "/libuct_gaudi.so.0\n"));
}

TEST_F(info, tells_which_way_of_loading_is_active)
{
    const arguments look_inside = {launcher, "info"};
    const auto expect = [](const process_result &result, const char *preload,
                           const char *slot) {
        EXPECT_TRUE(exited_with(0, result));
        EXPECT_THAT(result.output,
                    HasSubstr(std::string("\npreload   ") + preload +
                              std::string(" ") + library + "/" + preloaded));
        EXPECT_THAT(result.output,
                    HasSubstr(std::string("\nslot      ") + slot +
                              std::string(" ") + library + "/slot\n"));
    };
    expect(look({"--emulate"}), "not active", "not active");
    expect(emulated(look_inside), "active    ", "not active");
    expect(run(under_launcher(look_inside, {"--emulate", "--slot"}), with()),
           "not active", "active    ");
    expect(run(under_launcher(under_launcher(look_inside, {"--slot"})), with()),
           "active    ", "active    ");
}

TEST_F(info, takes_no_card)
{
    /* A box of one card, which the program around it must still get. */
    const process_result result =
        run(under_launcher(
                {"sh", "-c", std::string(launcher) + " info && ucx_info -d"},
                {"--emulate=1"}),
            with());
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(result.output, HasSubstr("Device: gaudi0"));
}

TEST_F(info, shows_who_has_a_card)
{
    const arguments command =
        under_launcher({late_ucx, "hold", launcher, "info"}, {"--emulate=2"});
    const process_result result = run(command, with());
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(row(result, 0), ContainsRegex(" ours +emulator +pid [0-9]+ "
                                              "\\(late_ucx\\)$"));
    EXPECT_THAT(row(result, 1), ContainsRegex(" free +emulator +-$"));
    EXPECT_THAT(result.output, Not(HasSubstr("missing")));
}

/* --- what it finds missing -------------------------------------------------*/

TEST_F(info, fails_when_every_card_is_taken)
{
    const arguments command =
        under_launcher({late_ucx, "hold", launcher, "info"}, {"--emulate=1"});
    const process_result result = run(command, with());
    expect_missing(result, "all 1 cards are taken: 0 by pid ",
                   "wait for these programs");
    EXPECT_THAT(result.output, ContainsRegex("missing .*\\(late_ucx\\)"));
}

TEST_F(info, shows_cards_of_others_as_busy)
{
    const process_result result =
        with_driver(fake_driver, {{"FAKE_CARDS", "2"}, {"FAKE_TAKEN", "1"}});
    expect_missing(result, "all 2 cards are taken: 0 by a process of another",
                   "wait for these programs or end them");
    EXPECT_THAT(row(result, 0),
                ContainsRegex("^0 +5 +00ff:19:00.0 +- +96\\.0GiB +24\\.0GiB "
                              "+busy +hardware +-$"));
}

TEST_F(info, does_not_guess_what_an_old_library_cannot_tell)
{
    const process_result result = with_driver(old_driver);
    EXPECT_THAT(row(result, 0), ContainsRegex(" unknown +hardware +-$"));
}

TEST_F(info, offers_the_emulator_on_a_machine_without_gaudi)
{
    expect_missing(look(), "no Gaudi in this machine", "--emulate");
    EXPECT_THAT(look().output,
                HasSubstr("driver    none (UCX_GAUDI_DRIVER=auto)\n"));
}

TEST_F(info, refuses_a_driver_that_means_nothing)
{
    for (const char *driver : {"emulater", "", "libhl-thunk.so", "a\nb"}) {
        SCOPED_TRACE(driver);
        const process_result result = with_driver(driver);
        expect_missing(result, "is not auto, hlthunk, emulator, or the path",
                       "set it to one of these");
        EXPECT_EQ(1u, lines_with(result.output, "driver    none").size());
    }
}

TEST_F(info, says_why_a_driver_library_cannot_be_used)
{
    scratch_directory files;
    const std::string text = files.file("libhl-thunk.so", "no library");
    expect_missing(with_driver("/no/such/libhl-thunk.so"),
                   "/no/such/libhl-thunk.so: cannot open shared object file",
                   "set UCX_GAUDI_DRIVER to the path");
    expect_missing(with_driver(text), text, "set UCX_GAUDI_DRIVER to the path");
    expect_missing(with_driver(broken_driver),
                   "lacks hlthunk_memory_unmap, hlthunk_wait_for_cs",
                   "set UCX_GAUDI_DRIVER to the path");
}

TEST_F(info, says_where_the_vendors_library_is_missing)
{
    /* In front of one that may be installed. */
    scratch_directory files;
    (void)files.file("libhl-thunk.so", "no library");
    expect_missing(
        with_driver("hlthunk", {{"LD_LIBRARY_PATH", files.path(".")}}),
        "the driver library cannot be used: ", "install the vendor's");
}

TEST_F(info, explains_a_box_without_cards)
{
    expect_missing(with_driver("emulator", {{"HLTHUNK_EMU_HBM", "1"}}),
                   "the driver library shows no card", "HLTHUNK_EMU_*");
    expect_missing(with_driver(fake_driver, {{"FAKE_CARDS", "0"}}),
                   "the driver library shows no card", "dmesg");
}

TEST_F(info, explains_nodes_and_cards_that_do_not_answer)
{
    expect_missing(with_driver(fake_driver, {{"FAKE_NODE_ERROR", "13"}}),
                   "a control node cannot be opened: Permission denied",
                   "permissions");
    expect_missing(with_driver(fake_driver, {{"FAKE_INFO_ERROR", "19"}}),
                   "card 0 (00ff:19:00.0) does not answer: No such device",
                   "reset");
    expect_missing(with_driver(fake_driver, {{"FAKE_DEVICE_ID", "0x1000"}}),
                   "card 0 (00ff:19:00.0) is no Gaudi2", "no other card");
}

TEST_F(info, explains_a_missing_ucx)
{
    scratch_directory files;
    (void)files.file("libucp.so.0", "no library");
    const process_result result =
        look({"--emulate"}, {{"LD_LIBRARY_PATH", files.path(".")}});
    expect_missing(result,
                   "no UCX can be loaded: ", "install UCX " GAUDI_UCX_VERSION);
    EXPECT_THAT(result.output, HasSubstr("\nucx       none "));
}

TEST_F(info, explains_another_ucx_version)
{
    const process_result result = look(
        {"--emulate"}, {{"LD_LIBRARY_PATH", GAUDI_TOOLS_DIR "/other-ucx"}});
    expect_missing(result,
                   "the UCX found is 9.9.9, and the module is built "
                   "for " GAUDI_UCX_VERSION,
                   "build the project again with that UCX");
    EXPECT_THAT(result.output, HasSubstr("\nucx       9.9.9 at "));
}

TEST_F(info, names_every_part_that_is_missing)
{
    struct {
        const char *part;
        const char *what;
        const char *mend;
        int code; /* one way of loading is enough */
    } const cases[] = {
        {"libucx_gaudi_preload.so", "libucx_gaudi_preload.so is missing",
         "build the project", 0},
        {"slot", "slot is missing or incomplete", "build the project", 0},
        {"slot/libucs.so.0", "slot is missing or incomplete",
         "build the project", 0},
        {"libuct_gaudi.so.0", "libuct_gaudi.so.0 is missing",
         "build the project", 1},
        {"hlthunk-emu/libhl-thunk.so",
         "hlthunk-emu/libhl-thunk.so: cannot open", "build the project", 1},
    };
    for (const auto &[part, what, mend, code] : cases) {
        SCOPED_TRACE(part);
        const copied_installation copy;
        copy.remove(part);
        const process_result result =
            run({copy.launcher(), "info", "--emulate"}, with());
        expect_missing(result, what, mend, code);
        EXPECT_EQ(1u, lines_with(result.output, "missing   ").size())
            << result.output;
    }
}

TEST_F(info, notices_a_slot_whose_ucx_is_gone)
{
    const copied_installation copy;
    copy.remove("slot/libucs.so.0");
    fs::create_symlink("/no/such/libucs.so.0", copy.path("slot/libucs.so.0"));
    const process_result result =
        run({copy.launcher(), "info", "--emulate"}, with());
    expect_missing(result, "slot/libucs.so.0 leads to is gone",
                   "install it again", 0);
    EXPECT_EQ(1u, lines_with(result.output, "slot      broken ").size());
}

TEST_F(info, notices_a_place_from_which_nothing_can_be_loaded)
{
    const copied_installation spaces("with a space");
    expect_missing(run({spaces.launcher(), "info", "--emulate"}, with()),
                   "cannot be in LD_PRELOAD", "move the project", 0);
    const copied_installation colon("with:colon");
    expect_missing(run({colon.launcher(), "info", "--emulate"}, with()),
                   "cannot be in LD_LIBRARY_PATH", "move the project", 1);
}

TEST_F(info, takes_no_command_and_no_slot)
{
    EXPECT_TRUE(exited_with(2, look({"--slot"})));
    EXPECT_TRUE(exited_with(2, look({"--", "echo"})));
    EXPECT_TRUE(exited_with(2, look({"echo"})));
    EXPECT_TRUE(exited_with(2, look({"--emulate=0"})));
}

TEST_F(info, explains_its_columns_and_exit_codes)
{
    const process_result result = look({"--help"});
    EXPECT_TRUE(exited_with(0, result));
    for (const char *word :
         {"index", "module", "numa", "HBM", "state", "free", "ours", "busy",
          "unknown", "kind", "held by", "missing", "to mend", "Exit code"}) {
        EXPECT_THAT(result.output, HasSubstr(word));
    }
}

/* --- its parts -------------------------------------------------------------*/

TEST_F(made_up_machine, finds_the_processes_that_hold_nodes)
{
    make_process(17, "trainer", {"/dev/null", "/dev/accel/accel3"});
    make_process(4, "old\x1bone", {"/dev/hl0", "/dev/hl0"});
    make_process(30, "helper", {"/dev/accel/accel3"});
    make_process(31, "emulating", {launcher::emulated_node_path("a/box", 2)});
    make_process(32, "listing", {"/dev/accel/accel_controlD3"});
    make("proc/self/comm", "no process");

    const launcher::holders found = launcher::find_holders(where.proc);
    EXPECT_EQ("pid 17 (trainer), pid 30 (helper)",
              launcher::describe(found.at("/dev/accel/accel3")));
    EXPECT_EQ("pid 4 (old\x1bone)", launcher::describe(found.at("/dev/hl0")));
    EXPECT_EQ("pid 31 (emulating)",
              launcher::describe(
                  found.at("/memfd:hlthunk-emu/a/box/accel2 (deleted)")));
    EXPECT_EQ(geteuid(), found.at("/dev/hl0").at(0).user);
    EXPECT_EQ(0u, found.count("/dev/null"));
    EXPECT_EQ(0u, launcher::find_holders(files.path("no-proc")).size());
}

TEST_F(made_up_machine, tells_whose_a_card_is)
{
    using launcher::card_state;
    using launcher::find_state;

    const std::vector<launcher::holder> mine   = {{5, 1000, "a"}};
    const std::vector<launcher::holder> theirs = {{6, 1001, "b"}};
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
    const shim::library driver(fake_driver);
    ASSERT_TRUE(driver.usable()) << driver.reason();
    make_node("dev/accel/accel0", 0666);
    make("sys/bus/pci/devices/00ff:19:00.0/vendor", "0x1da3\n");
    make("sys/bus/pci/devices/00ff:19:00.0/numa_node", "1\n");
    make_process(17, "trainer", {"/dev/accel/accel0"});

    const launcher::card_list list = launcher::list_cards(driver, where);
    ASSERT_EQ(1u, list.cards.size());
    EXPECT_EQ(launcher::card_state::ours, list.cards[0].state);
    EXPECT_EQ("pid 17 (trainer)", launcher::describe(list.cards[0].held_by));
    EXPECT_EQ(1u, list.cards[0].numa_node);
    EXPECT_TRUE(list.cards[0].usable);
    EXPECT_EQ(0u, list.complaints.size());
}

TEST_F(made_up_machine, does_not_count_on_a_card_whose_node_is_closed)
{
    make("dev/accel", ""); /* closed to root, too */
    const shim::library driver(fake_driver);
    const launcher::card_list list = launcher::list_cards(driver, where);
    ASSERT_EQ(1u, list.cards.size());
    EXPECT_FALSE(list.cards[0].usable);
}

TEST_F(made_up_machine, believes_sysfs_about_gaudi_cards_only)
{
    const std::string devices = "sys/bus/pci/devices/";
    make(devices + "0000:01:00.0/vendor", "0x1da3\n");
    make(devices + "0000:01:00.0/numa_node", "-1\n");
    make(devices + "0000:02:00.0/vendor", "0x8086\n");
    make(devices + "0000:02:00.0/numa_node", "1\n");
    make(devices + "0000:03:00.0/vendor", "0x1da3\n");
    make(devices + "0000:03:00.0/numa_node", "12\n");
    EXPECT_EQ(std::nullopt, launcher::numa_node_of(where.sys, "0000:01:00.0"));
    EXPECT_EQ(std::nullopt, launcher::numa_node_of(where.sys, "0000:02:00.0"));
    EXPECT_EQ(12u, launcher::numa_node_of(where.sys, "0000:03:00.0"));
    EXPECT_EQ(std::nullopt, launcher::numa_node_of(where.sys, "0000:04:00.0"));
    EXPECT_EQ(2u, launcher::count_pci_cards(where));
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
    EXPECT_THAT(text, ContainsRegex("\\(group [^ ]+, mode 0[06]{3}\\)"));
    EXPECT_THAT(text, Not(HasSubstr("accel1")));
    EXPECT_THAT(text, Not(HasSubstr("hlog")));
    if (geteuid() == 0) {
        ASSERT_EQ(2u, found.size()) << text;
        EXPECT_THAT(
            text, HasSubstr("accel0 and 1 more (group 4200000001, mode "
                            "0660)\njoin the group (usermod -aG 4200000001 "));
        EXPECT_THAT(text,
                    HasSubstr("hl7 (group 4200000001, mode 0600)\nlet root"));
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

} // namespace gaudi::test
