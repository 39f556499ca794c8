/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx-gaudi info: what it shows, what it finds missing, its exit code. */
#include "launcher/info.h"
#include "gtest/tools/installations.h"
#include "gtest/tools/release.h"

#include "common/emulator.h"
#include "common/scratch.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include <cjson/cJSON.h>

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char late_ucx[]       = GAUDI_TOOLS_DIR "/late_ucx";
constexpr char fake_driver[]    = GAUDI_TOOLS_DIR "/libfake_driver.so";
constexpr char old_driver[]     = GAUDI_TOOLS_DIR "/libold_driver.so";
constexpr char synapse_folder[] = GAUDI_BUILD_DIR "/lib/synapse";
constexpr char broken_driver[] =
    GAUDI_BUILD_DIR "/lib/stubs/libhlthunk_stub_no_required.so";

/* An object that a program has written. */
class parsed_json {
public:
    explicit parsed_json(const std::string &text)
        : root_(cJSON_Parse(text.c_str()), cJSON_Delete)
    {
        EXPECT_NE(nullptr, root_) << text;
    }

    /* What is at a path of names and numbers, without spaces. */
    [[nodiscard]] std::string at(const std::vector<std::string> &path) const
    {
        const cJSON *place = root_.get();
        for (const std::string &step : path) {
            place = cJSON_IsArray(place)
                        ? cJSON_GetArrayItem(place, std::stoi(step))
                        : cJSON_GetObjectItem(place, step.c_str());
        }
        if (place == nullptr) {
            return "nothing";
        }
        const std::unique_ptr<char, decltype(&std::free)> text(
            cJSON_PrintUnformatted(place), std::free);
        return text.get();
    }

private:
    std::unique_ptr<cJSON, decltype(&cJSON_Delete)> root_;
};

class info : public tools {
protected:
    [[nodiscard]] process_result look(const arguments &options     = {},
                                      const environment &variables = {}) const
    {
        return run(joined({launcher, "info"}, options), with(variables));
    }

    /* Of another installation. */
    [[nodiscard]] process_result of(const copied_installation &copy,
                                    const environment &variables = {}) const
    {
        return run({copy.launcher(), "info", "--emulate"}, with(variables));
    }

    [[nodiscard]] process_result
    emulating(const environment &variables = {}) const
    {
        return look({"--emulate"}, variables);
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
        EXPECT_TRUE(exited_with(code, result, {"\nmissing   "}));
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

} // namespace

/* --- what it shows ---------------------------------------------------------*/

TEST_F(info, lists_the_cards_of_the_software_box)
{
    const process_result result = look({"--emulate=3"});
    EXPECT_TRUE(exited_with(0, result, {}, {"missing"}));
    EXPECT_THAT(result.output,
                ContainsRegex("index +module +bus id +numa +HBM +free +state "
                              "+kind +held by"));
    for (unsigned i = 0; i < 3; ++i) {
        const std::string index = std::to_string(i);
        EXPECT_THAT(
            row(result, i),
            ContainsRegex("^" + index + " +" + index +
                          " +0000:[0-9a-f]{2}:00\\.0 +- +9[56]\\.[0-9]GiB "
                          "+9[56]\\.[0-9]GiB +free +emulator +-$"));
    }
    EXPECT_TRUE(has_lines(3, " emulator ", result));
}

TEST_F(info, shows_links_and_where_they_lead)
{
    const scratch_directory sys;
    const environment with_sysfs = {{"HLTHUNK_EMU_SYSFS", sys.path("")},
                                    {"HLTHUNK_EMU_PORTS", "y"}};
    EXPECT_TRUE(exited_with(0, look({"--emulate=3"}, with_sysfs),
                            {"links     3 for each pair (HLS-2)\n"}));
    EXPECT_TRUE(exited_with(0, look({"--emulate=3"}),
                            {"links     3? for each pair (HLS-2)\n"}))
        << "nothing shows their state";

    const parsed_json all(look({"--emulate=3", "--json"}, with_sysfs).output);
    EXPECT_EQ(R"({"port":10,"state":"LinkUp","leads_to":"card",)"
              R"("module_id":2,"peer_port":16})",
              all.at({"cards", "0", "links", "10"}));
    EXPECT_EQ(R"("nothing")", all.at({"cards", "0", "links", "8", "leads_to"}));
}

TEST(info_text, shows_links_that_are_down_in_a_matrix)
{
    launcher::report found;
    for (unsigned card = 0; card < 3; ++card) {
        launcher::card &made = found.cards.emplace_back();
        made.name            = card;
        made.module_id       = card;
        made.port_map        = "a box";
        for (unsigned peer = 0; peer < 3; ++peer) {
            for (unsigned i = 0; (peer != card) && (i < 2); ++i) {
                const bool up = (i == 0) || (card + peer != 1);
                made.links.push_back({.is_up = up,
                                      .state = up ? "LinkUp" : "Disabled",
                                      .end   = {true, peer, 0}});
            }
        }
    }
    found.cards[2].links.push_back({.state = "Polling", .end = {}});
    EXPECT_THAT(launcher::to_text(found), HasSubstr("links  0    1    2\n"
                                                    "0      -    1/2  2\n"
                                                    "1      1/2  -    2\n"
                                                    "2      2    2    -\n"
                                                    "box       a box\n"));
    found.cards[0].no_map = "how ports are connected is not known";
    EXPECT_THAT(launcher::to_text(found),
                HasSubstr("links     how ports are connected is not known\n"));
}

TEST_F(info, calls_cards_as_the_transports_do)
{
    const process_result result =
        look({"--emulate=3"},
             {{"GAUDI_MAPPING_TABLE",
               R"([{"index":7,"module_id":2,"bus_id":"0000:33:00.0"},)"
               R"({"index":0,"module_id":1,"bus_id":"0000:1a:00.0"}])"}});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(row(result, 7), ContainsRegex("^7 +2 +0000:33:00\\.0 "));
    EXPECT_THAT(row(result, 0), ContainsRegex("^0 +1 +0000:1a:00\\.0 "));
    EXPECT_THAT(result.output, ContainsRegex("\n- +0 +0000:19:00\\.0 "))
        << "not in the table";
}

TEST_F(info, shows_numa_nodes_of_software_cards_that_have_a_sysfs)
{
    const scratch_directory files;
    const process_result result =
        look({"--emulate=2"}, {{"HLTHUNK_EMU_SYSFS", files.path("sys")},
                               {"HLTHUNK_EMU_NUMA", "3"}});
    EXPECT_THAT(row(result, 0), ContainsRegex("^0 +0 +0000:19:00\\.0 +3 "));
    EXPECT_THAT(row(result, 1), ContainsRegex("^1 +1 +0000:1a:00\\.0 +3 "));
}

TEST_F(info, finds_variables_that_hide_the_cards)
{
    expect_missing(emulating({{"HABANA_VISIBLE_DEVICES", "none"}}),
                   "HABANA_VISIBLE_DEVICES hides all cards", "unset it");
    expect_missing(emulating({{"HLS_MODULE_ID", "8"}}),
                   "HLS_MODULE_ID=8: no card of this machine has module id 8",
                   "correct this variable");
    expect_missing(emulating({{"GAUDI_MAPPING_TABLE", "[\n[]]"}}),
                   "GAUDI_MAPPING_TABLE: entry 1: it is an array, not an "
                   "object",
                   "correct this variable");
}

TEST_F(info, finds_a_memory_type_that_cannot_be_taken)
{
    expect_missing(emulating({{"UCX_GAUDI_MEMORY_TYPE", "gold"},
                              {"UCX_LOG_FILE", "/dev/null"},
                              {"UCX_LOG_LEVEL", "fatal"}}),
                   "UCX_GAUDI_MEMORY_TYPE=gold is not one of",
                   "see to that setting");
}

TEST_F(info, finds_values_that_cannot_be_parsed)
{
    const process_result result = emulating({{"UCX_GAUDI_ENGINE", "foo"}});
    expect_missing(result, "UCX_GAUDI_ENGINE=foo is not valid (expected: ",
                   "see to that setting");
    EXPECT_TRUE(has_lines(1, "missing   ", result));
    expect_missing(emulating({{"UCX_GAUDI_RESET_TIMEOUT", "soon"}}),
                   "UCX_GAUDI_RESET_TIMEOUT=soon is not valid (expected: time",
                   "see to that setting");
}

TEST_F(info, has_what_configuration_files_of_ucx_set)
{
    const scratch_directory files;
    const auto with_file = [&](const std::string &text,
                               environment variables = {}) {
        (void)files.file("ucx.conf", text + "\n");
        variables["UCX_CONFIG_DIR"] = files.path("");
        return look({}, variables);
    };
    const std::string emulated = "UCX_GAUDI_DRIVER=emulator\n";
    const process_result cards =
        with_file(emulated, {{"HLTHUNK_EMU_DEVICES", "2"}});
    EXPECT_TRUE(exited_with(0, cards, {}, {"missing"}));
    EXPECT_TRUE(has_lines(2, " emulator ", cards));
    EXPECT_TRUE(has_lines(0, " emulator ",
                          with_file(emulated, {{"UCX_GAUDI_DRIVER", "/none"}})))
        << "the environment comes first";
    expect_missing(with_file(emulated + "UCX_GAUDI_IPC_ROUTES=sea"),
                   "UCX_GAUDI_IPC_ROUTES=sea", "correct this variable");
    expect_missing(with_file("UCX_LOG_LEVEL=fatal\nUCX_GAUDI_ENGINE=steam"),
                   "UCX_GAUDI_ENGINE=steam", "see to that setting");
}

TEST_F(info, finds_protocols_that_cannot_be_used)
{
    const process_result result = emulating({{"UCX_PROTO_ENABLE", "No"}});
    if (has_old_protocols) {
        EXPECT_TRUE(exited_with(0, result));
    } else {
        expect_missing(result, "UCX_PROTO_ENABLE=n chooses protocols",
                       "leave it unset");
    }
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
    EXPECT_THAT(row(look({"--emulate=1"}, {{"HLTHUNK_EMU_HBM", "144M"},
                                           {"HLTHUNK_EMU_DRAM_PAGE", "48M"}}),
                    0),
                ContainsRegex(" 96\\.0MiB +96\\.0MiB "));
}

TEST_F(info, has_as_many_cards_as_the_environment_says)
{
    const environment five = {{"HLTHUNK_EMU_DEVICES", "5"}};
    EXPECT_TRUE(has_lines(5, "emulator  -", emulating(five)));
    EXPECT_TRUE(has_lines(8, "emulator  -", emulating()));
    EXPECT_TRUE(has_lines(2, "emulator  -", look({"--emulate=2"}, five)));
    EXPECT_TRUE(has_lines(5, "emulator  -", with_driver("emulator", five)));
}

TEST_F(info, shows_the_ucx_and_the_driver_library)
{
    const process_result result = emulating();
    EXPECT_THAT(result.output, ContainsRegex("\nucx       " GAUDI_UCX_VERSION
                                             " at /.*libucp\\.so.*\n"));
    EXPECT_THAT(result.output, HasSubstr(std::string("driver    ") + library +
                                         "/hlthunk-emu/libhl-thunk.so "
                                         "(UCX_GAUDI_DRIVER=emulator)\n"));
    EXPECT_THAT(result.output, HasSubstr(std::string("\nmodule    ") + library +
                                         "/ucx-gaudi/" GAUDI_UCX_RELEASE
                                         "/libuct_hlthunk.so.0 (installed: "));
}

TEST_F(info, tells_which_way_of_loading_is_active)
{
    const arguments look_inside = {launcher, "info"};
    const auto expect = [](const process_result &result, const char *preload,
                           const char *slot) {
        EXPECT_TRUE(exited_with(
            0, result,
            {std::string("\npreload   ") + preload + " " + preloaded_name(),
             std::string("\nslot      ") + slot + std::string(" ") + library +
                 "/ucx-gaudi/slot\n"}));
    };
    expect(emulating(), "not active", "not active");
    expect(emulated(look_inside), "active    ", "not active");
    expect(launched(look_inside, {"--emulate", "--slot"}), "not active",
           "active    ");
    expect(emulated(under_launcher(look_inside, {"--slot"})), "active    ",
           "active    ");
}

TEST_F(info, writes_the_same_facts_as_json)
{
    const process_result result = launched(
        {late_ucx, "hold", launcher, "info", "--json"}, {"--emulate=2"});
    ASSERT_TRUE(exited_with(0, result));
    const parsed_json all(result.output);
    EXPECT_EQ("true", all.at({"usable"}));
    EXPECT_EQ("\"emulator\"", all.at({"driver", "setting"}));
    EXPECT_THAT(all.at({"driver", "file"}), HasSubstr("/libhl-thunk.so\""));
    EXPECT_EQ("0", all.at({"cards", "0", "module_id"}));
    EXPECT_EQ("\"0000:1a:00.0\"", all.at({"cards", "1", "bus_id"}));
    EXPECT_EQ(std::to_string(device_bytes()), all.at({"cards", "1", "memory"}));
    EXPECT_EQ("null", all.at({"cards", "1", "numa_node"}));
    EXPECT_EQ("\"ours\"", all.at({"cards", "0", "state"}));
    EXPECT_EQ("\"late_ucx\"",
              all.at({"cards", "0", "held_by", "0", "program"}));
    EXPECT_EQ("[]", all.at({"cards", "1", "held_by"}));
    EXPECT_EQ("\"" GAUDI_UCX_VERSION "\"", all.at({"ucx", "version"}));
    EXPECT_THAT(all.at({"module", "installed"}),
                HasSubstr("\"" GAUDI_UCX_RELEASE "\""));
    EXPECT_EQ("\"active\"", all.at({"loading", "preload", "state"}));
    EXPECT_EQ("[]", all.at({"problems"}));
}

TEST_F(info, writes_problems_as_json)
{
    const process_result result = look({"--json"});
    EXPECT_TRUE(exited_with(1, result));
    const parsed_json all(result.output);
    EXPECT_EQ("false", all.at({"usable"}));
    EXPECT_EQ("null", all.at({"driver", "file"}));
    EXPECT_EQ("[]", all.at({"cards"}));
    EXPECT_EQ("\"no Gaudi in this machine\"",
              all.at({"problems", "0", "missing"}));
    EXPECT_THAT(all.at({"problems", "0", "to_mend"}), HasSubstr("--emulate"));
}

TEST_F(info, tells_over_which_wire_each_pair_of_cards_goes)
{
    const process_result result = look({"--emulate=3"});
    EXPECT_THAT(lines_with(result.output, "pairs "),
                ElementsAre(HasSubstr("pairs     host for all 3: there is no "
                                      "verbs device ")));
    const process_result wished =
        look({"--emulate=2", "--json"}, {{"UCX_GAUDI_IPC_ROUTES", "host"}});
    EXPECT_EQ(R"([{"way":"host","why":"first in UCX_GAUDI_IPC_ROUTES",)"
              R"("cards":[[0,1]]}])",
              parsed_json(wished.output).at({"pairs"}));
    EXPECT_EQ("[]", parsed_json(look({"--json"}).output).at({"pairs"}));
    const process_result ports =
        look({"--emulate=2", "--json"}, {{"HLTHUNK_EMU_PORTS", "y"}});
    EXPECT_EQ(R"([{"way":"ports","why":"3 links, if HCL of a framework )"
              R"(leaves them","cards":[[0,1]]}])",
              parsed_json(ports.output).at({"pairs"}));
}

TEST_F(info, finds_routes_that_are_none)
{
    expect_missing(emulating({{"UCX_GAUDI_IPC_ROUTES", "host,wire"}}),
                   "UCX_GAUDI_IPC_ROUTES=host,wire: 'wire' is neither ports "
                   "nor host",
                   "correct this variable");
}

TEST_F(info, takes_no_card)
{
    /* A box of one card, which the program around it must still get. */
    const arguments both = {"sh", "-c",
                            quoted(launcher) + " info && ucx_info -d"};
    EXPECT_TRUE(
        exited_with(0, launched(both, {"--emulate=1"}), {"Device: gaudi0"}));
}

TEST_F(info, shows_who_has_a_card)
{
    const process_result result =
        launched({late_ucx, "hold", launcher, "info"}, {"--emulate=2"});
    EXPECT_TRUE(exited_with(0, result, {}, {"missing"}));
    EXPECT_THAT(row(result, 0), ContainsRegex(" ours +emulator +pid [0-9]+ "
                                              "\\(late_ucx\\)$"));
    EXPECT_THAT(row(result, 1), ContainsRegex(" free +emulator +-$"));
}

/* --- what it finds missing -------------------------------------------------*/

TEST_F(info, fails_when_every_card_is_taken)
{
    const process_result result =
        launched({late_ucx, "hold", launcher, "info"}, {"--emulate=1"});
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
    EXPECT_TRUE(exited_with(0, result));
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
        EXPECT_TRUE(has_lines(1, "driver    none", result));
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
                   "no Gaudi in this machine", "--emulate");
}

TEST_F(info, explains_nodes_and_cards_that_do_not_answer)
{
    expect_missing(with_driver(fake_driver, {{"FAKE_NODE_ERROR", "13"}}),
                   "a control node cannot be used: Permission denied",
                   "permissions");
    expect_missing(with_driver(fake_driver, {{"FAKE_INFO_ERROR", "19"}}),
                   "card 0 (00ff:19:00.0) does not answer: No such device",
                   "reset");
    expect_missing(with_driver(fake_driver, {{"FAKE_DEVICE_ID", "0x1000"}}),
                   "card 0 (00ff:19:00.0) is no Gaudi2, but PCI device 0x1000 "
                   "GAUDI",
                   "use a release of ucx-gaudi that knows it");
    expect_missing(with_driver(fake_driver, {{"FAKE_DEVICE_ID", "0x1060"}}),
                   "card 0 (00ff:19:00.0) takes work through SynapseAI alone",
                   "UCX_GAUDI_ENGINE=synapse");
    expect_missing(with_driver(fake_driver, {{"FAKE_DEVICE_ID", "0x4711"},
                                             {"FAKE_DEVICE_NAME", "3"}}),
                   "card 0 (00ff:19:00.0) is no Gaudi2, but PCI device 0x4711 "
                   "HL-fake",
                   "use a release of ucx-gaudi that knows it, if there is one; "
                   "UCX_GAUDI_CARD_KIND=gaudi2 or gaudi3 tries it as one of "
                   "these");
}

TEST_F(info, takes_an_unknown_card_for_what_it_is_told)
{
    const auto as = [&](const char *kind, environment variables) {
        variables["UCX_GAUDI_CARD_KIND"] = kind;
        variables["FAKE_DEVICE_NAME"]    = "3";
        return with_driver(fake_driver, variables);
    };
    const environment unknown = {{"FAKE_DEVICE_ID", "0x4711"}};
    EXPECT_TRUE(exited_with(0, as("Gaudi2", unknown), {}, {"is no Gaudi2"}));
    expect_missing(as("gaudi3", unknown), "takes work through SynapseAI alone",
                   "UCX_GAUDI_ENGINE=synapse");
    expect_missing(as("gaudi4", unknown),
                   "UCX_GAUDI_CARD_KIND=gaudi4 is not valid",
                   "see to that setting");
    /* What is known stays what it is. */
    expect_missing(as("gaudi2", {{"FAKE_DEVICE_ID", "0x1060"}}),
                   "takes work through SynapseAI alone",
                   "UCX_GAUDI_ENGINE=synapse");
}

TEST_F(info, shows_cards_that_are_in_reset_or_broken)
{
    const auto expect = [this](const char *status, const char *what,
                               const char *mend, const char *state) {
        SCOPED_TRACE(status);
        const process_result result =
            with_driver(fake_driver, {{"FAKE_STATUS", status}});
        expect_missing(result, std::string("card 0 (00ff:19:00.0) is ") + what,
                       mend);
        EXPECT_THAT(row(result, 0), HasSubstr(state));
    };
    for (const char *status : {"1", "4", "5"}) {
        expect(status, "in reset", "UCX_GAUDI_RESET_TIMEOUT", " reset ");
    }
    for (const char *status : {"2", "3"}) {
        expect(status, "disabled", "load the kernel driver again", " broken ");
    }
}

TEST_F(info, tells_a_cause_once_for_all_cards)
{
    const process_result reset = emulating({{"HLTHUNK_EMU_FAULTS", "reset=9"}});
    expect_missing(
        reset, "cards 0 (0000:19:00.0), 1 (0000:1a:00.0), 2 (0000:33:00.0), ",
        "UCX_GAUDI_RESET_TIMEOUT");
    EXPECT_THAT(lines_with(reset.output, "missing   "),
                ElementsAre(HasSubstr(", 7 (0000:cd:00.0) are in reset")));

    EXPECT_THAT(
        lines_with(with_driver(fake_driver,
                               {{"FAKE_CARDS", "3"}, {"FAKE_STATUS", "1,2,4"}})
                       .output,
                   "missing   "),
        ElementsAre(HasSubstr("cards 0 (00ff:19:00.0), 2 (00ff:1b:00.0) are"),
                    HasSubstr("card 1 (00ff:1a:00.0) is disabled")));
}

TEST_F(info, calls_only_those_cards_taken_that_somebody_has)
{
    const process_result one = with_driver(
        fake_driver,
        {{"FAKE_CARDS", "2"}, {"FAKE_TAKEN", "1,0"}, {"FAKE_STATUS", "0,1"}});
    EXPECT_TRUE(exited_with(1, one));
    EXPECT_THAT(lines_with(one.output, "missing   "),
                ElementsAre(HasSubstr("card 1 (00ff:1a:00.0) is in reset"),
                            ContainsRegex("missing   the other card is taken: "
                                          "0 by a process [^;]*$")));
    EXPECT_THAT(lines_with(with_driver(fake_driver, {{"FAKE_CARDS", "3"},
                                                     {"FAKE_TAKEN", "1,0,1"},
                                                     {"FAKE_STATUS", "0,2,0"}})
                               .output,
                           "missing   "),
                ElementsAre(HasSubstr("is disabled"),
                            ContainsRegex("all 2 other cards are taken: 0 by "
                                          "[^;]*; 2 by [^;]*$")));
}

/* --- cards that take work through SynapseAI alone --------------------------*/

TEST_F(info, finds_a_gaudi3_usable_when_synapse_can_have_it)
{
    for (const char *engine : {"synapse", "Synapse"}) {
        EXPECT_TRUE(exited_with(
            0,
            look({"--emulate=2"}, {{"HLTHUNK_EMU_ASIC", "gaudi3"},
                                   {"UCX_GAUDI_ENGINE", engine},
                                   {"LD_LIBRARY_PATH", synapse_folder}}),
            {}, {"missing"}));
    }
}

TEST_F(info, tells_in_one_line_how_a_gaudi3_is_used)
{
    scratch_directory files;
    (void)files.file("libSynapse.so", "no library");
    const auto expect = [&](const char *engine, const std::string &folder,
                            const char *what, const char *mend) {
        SCOPED_TRACE(std::string(engine) + " " + folder);
        const process_result result = emulating({{"HLTHUNK_EMU_ASIC", "gaudi3"},
                                                 {"UCX_GAUDI_ENGINE", engine},
                                                 {"LD_LIBRARY_PATH", folder}});
        EXPECT_TRUE(exited_with(1, result));
        EXPECT_THAT(lines_with(result.output, "missing   "),
                    ElementsAre(HasSubstr(what)));
        EXPECT_THAT(lines_with(result.output, "to mend   "),
                    ElementsAre(ContainsRegex(mend)));
    };
    const char *const alone =
        ", 7 (0000:cd:00.0) take work through SynapseAI alone";
    expect("auto", synapse_folder, alone, "set UCX_GAUDI_ENGINE=synapse$");
    expect("cs", synapse_folder, alone,
           "set UCX_GAUDI_ENGINE=synapse, or unset it where the framework");
    expect("auto", files.path("."), alone,
           "set UCX_GAUDI_ENGINE=synapse; libSynapse.so cannot be loaded now");
    expect("synapse", files.path("."),
           "UCX_GAUDI_ENGINE=synapse, and SynapseAI cannot be used: ",
           "put the directory of libSynapse.so .* into LD_LIBRARY_PATH$");
}

TEST_F(info, needs_synapse_for_a_gaudi2_that_is_to_be_driven_by_it)
{
    scratch_directory files;
    (void)files.file("libSynapse.so", "no library");
    expect_missing(emulating({{"UCX_GAUDI_ENGINE", "synapse"},
                              {"LD_LIBRARY_PATH", files.path(".")}}),
                   "SynapseAI cannot be used: ", "or unset UCX_GAUDI_ENGINE");
    EXPECT_TRUE(
        exited_with(0, emulating({{"UCX_GAUDI_ENGINE", "synapse"},
                                  {"LD_LIBRARY_PATH", synapse_folder}})));
}

TEST_F(info, explains_a_missing_ucx)
{
    scratch_directory files;
    (void)files.file("libucp.so.0", "no library");
    const process_result result =
        emulating({{"LD_LIBRARY_PATH", files.path(".")}});
    expect_missing(result, "no UCX can be loaded: ", "install UCX ");
    EXPECT_THAT(result.output, HasSubstr("\nucx       none\n"));
    EXPECT_THAT(result.output, HasSubstr("\nmodule    none (installed: "));
}

TEST_F(info, explains_another_ucx_version)
{
    const process_result result = look(
        {"--emulate"}, {{"LD_LIBRARY_PATH", GAUDI_TOOLS_DIR "/other-ucx"}});
    expect_missing(result, "no module fits UCX 9.9.9 at ",
                   "build ucx-gaudi with the source of UCX 9.9 ");
    EXPECT_THAT(result.output, HasSubstr("\nucx       9.9.9 at "));
    EXPECT_THAT(result.output, HasSubstr("\nmodule    none (installed: "));
    EXPECT_THAT(lines_with(result.output, "; installed: "),
                ::testing::Contains(HasSubstr(GAUDI_UCX_RELEASE)));

    scratch_directory files;
    make_ucx(files, "old", "1.9.0");
    expect_missing(emulating({{"LD_LIBRARY_PATH", files.path("old")}}),
                   "UCX 1.9.0 at " + files.path("old/libucp.so.0") +
                       " is too old",
                   "use UCX 1.13 or newer");
}

TEST_F(info, names_the_module_that_fits_among_several)
{
    const copied_installation copy;
    const std::string own = copy.path("ucx-gaudi/" GAUDI_UCX_RELEASE);
    for (const char *release : {"1.9", "9.8"}) {
        const std::string other = copy.path("ucx-gaudi/") + release;
        fs::create_directories(other);
        fs::copy_file(GAUDI_TOOLS_DIR "/libstand_in_module.so",
                      other + "/libuct_hlthunk.so.0");
    }
    scratch_directory files;
    make_ucx(files, "new", "9.8.3");
    EXPECT_TRUE(exited_with(
        0, of(copy, {{"LD_LIBRARY_PATH", files.path("new")}}),
        {"\nmodule    " + copy.path("ucx-gaudi/9.8/libuct_hlthunk.so.0") +
         " (installed: 1.9, 1."}));
    EXPECT_THAT(of(copy).output, HasSubstr("\nmodule    " + own + "/"));
}

TEST_F(info, notices_a_module_that_cannot_be_used)
{
    const copied_installation copy;
    const std::string module =
        copy.path("ucx-gaudi/" GAUDI_UCX_RELEASE "/libuct_hlthunk.so.0");
    const auto expect_unusable = [&](const process_result &result,
                                     const auto &reason) {
        expect_missing(result, "the module for UCX " GAUDI_UCX_VERSION " at ",
                       "install or build ucx-gaudi again");
        EXPECT_THAT(lines_with(result.output, "missing   ").at(0), reason);
    };
    const auto replace_by = [&](const char *file) {
        fs::copy_file(file, module, fs::copy_options::overwrite_existing);
    };

    /* It opens and registers nothing, and says why. */
    expect_unusable(
        of(copy,
           {{"LD_PRELOAD", preloadable(GAUDI_TOOLS_DIR "/libother_async.so")}}),
        HasSubstr("cannot be used: the Gaudi transports were built for "
                  "another build of UCX"));
    replace_by(GAUDI_TOOLS_DIR "/libbroken_module.so");
    expect_unusable(of(copy), HasSubstr("nobody_has_this_function"));
    replace_by("/etc/os-release");
    expect_unusable(of(copy), HasSubstr("invalid ELF header"));
    replace_by(GAUDI_TOOLS_DIR "/libstand_in_module.so");
    expect_unusable(of(copy, {{"STAND_IN_ENDS", "1"}}),
                    ContainsRegex("ends by signal 9$"));
    for (const std::string told :
         {"[1.2] [vm:1:0]  some.c:103  UCX  ERROR it is Friday",
          "[vm:1:0:1]      some.c:103  Fatal: it is Friday"}) {
        expect_unusable(
            of(copy, {{"STAND_IN_ENDS", "1"},
                      {"STAND_IN_SAYS", "a line\n" + told + "\nmore"}}),
            ContainsRegex("ends by signal 9: it is Friday$"));
    }
}

TEST_F(info, says_that_memory_files_are_refused)
{
    for (const char *name : {"trial", "ucx-gaudi"}) {
        expect_missing(
            emulating(
                {{"LD_PRELOAD", preloadable(GAUDI_TOOLS_DIR "/libno_memfd.so")},
                 {"NO_MEMFD", name}}),
            "Operation not permitted", "memfd_create");
    }
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
         "install ucx-gaudi again", 0},
        {"ucx-gaudi/slot", "slot is missing or incomplete",
         "install ucx-gaudi again", 0},
        {"ucx-gaudi/slot/libucs.so.0", "slot is missing or incomplete",
         "install ucx-gaudi again", 0},
        {"libuct_hlthunk.so.0", "libuct_hlthunk.so.0 is missing",
         "install ucx-gaudi again", 1},
        {"ucx-gaudi/" GAUDI_UCX_RELEASE,
         "no module fits UCX " GAUDI_UCX_VERSION, "build ucx-gaudi", 1},
        {"hlthunk-emu/libhl-thunk.so",
         "hlthunk-emu/libhl-thunk.so: cannot open",
         "install the package hl-thunk-emulator", 1},
    };
    for (const auto &[part, what, mend, code] : cases) {
        SCOPED_TRACE(part);
        const copied_installation copy;
        copy.remove(part);
        const process_result result = of(copy);
        expect_missing(result, what, mend, code);
        EXPECT_TRUE(has_lines(1, "missing   ", result));
    }
}

TEST_F(info, notices_a_slot_whose_ucx_is_gone)
{
    const copied_installation copy;
    copy.remove("ucx-gaudi/slot/libucs.so.0");
    fs::create_symlink("/no/such/libucs.so.0",
                       copy.path("ucx-gaudi/slot/libucs.so.0"));
    scratch_directory files;
    (void)files.file("libucp.so.0", "no library");
    const process_result none =
        of(copy, {{"LD_LIBRARY_PATH", files.path(".")}});
    expect_missing(none, "slot/libucs.so.0 leads to is gone",
                   "install that UCX again");
    EXPECT_TRUE(has_lines(1, "slot      broken ", none));

    /* One that is elsewhere gets a slot when it is needed. */
    EXPECT_TRUE(exited_with(
        0, of(copy, {{"XDG_CACHE_HOME", files.path("cache")}}),
        {"\nslot      not active " + files.path("cache/ucx-gaudi/slot-")}));
    EXPECT_FALSE(fs::exists(files.path("cache")));
}

TEST_F(info, notices_a_place_from_which_nothing_can_be_loaded)
{
    const copied_installation spaces("with a space");
    if (ucx_is_before(1, 22)) {
        expect_missing(of(spaces), "cannot be in LD_PRELOAD", "move ucx-gaudi",
                       0);
    }
    scratch_directory files;
    make_ucx(files, "new", "9.8.3");
    const std::string plugin = spaces.path("ucx-gaudi/plugin");
    EXPECT_THAT(of(spaces, {{"LD_LIBRARY_PATH", files.path("new")},
                            {"UCX_PLUGIN_PATH", "/a:" + plugin + ":/b"}})
                    .output,
                HasSubstr("\nplugin    active     " + plugin + "\nslot "));

    const copied_installation colon("with:colon");
    const process_result none = of(colon);
    expect_missing(none, "cannot be in LD_LIBRARY_PATH", "move ucx-gaudi");
    expect_missing(none, "cannot be in LD_PRELOAD", "move ucx-gaudi");
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
    EXPECT_TRUE(exited_with(0, look({"--help"}),
                            {"index", "module", "numa", "HBM", "state", "free",
                             "ours", "busy", "unknown", "kind", "held by",
                             "pairs", "missing", "to mend", "Exit code"}));
}

/* As the loader does. */
TEST_F(info, shows_the_module_whose_functions_ucx_has)
{
    const copied_installation copy;
    const std::string folder = copy.path("ucx-gaudi/" GAUDI_UCX_RELEASE);
    fs::copy(folder, folder + "-0a1b2c");
    std::ofstream(folder + "/functions") << "-ucp_get_version\n";
    const process_result result = of(copy);
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(result.output, HasSubstr("\nmodule    " + folder + "-0a1b2c/"));
}

} // namespace gaudi::test
