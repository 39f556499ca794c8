/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx-gaudi info: what it shows, what it finds missing, its exit code. */
#include "common/needs.h"
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

    /* One of the problems, and what to do, have these words. */
    static void expect_missing(const process_result &result,
                               const std::string &what, const std::string &mend)
    {
        EXPECT_TRUE(exited_with(1, result));
        EXPECT_THAT(lines_with(result.output, "problem   "),
                    ::testing::Contains(HasSubstr(what)));
        EXPECT_THAT(lines_with(result.output, "fix:      "),
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

/* Variables, and words of what is missing and how to mend it. */
struct problem_case {
    const char *name;
    environment variables;
    const char *what;
    const char *mend;
    arguments options = {"--emulate=2"};
};

void PrintTo(const problem_case &one, std::ostream *out)
{
    *out << one.name;
}

class info_of_problems : public info,
                         public ::testing::WithParamInterface<problem_case> {};

problem_case of_fake(const char *name, environment variables, const char *what,
                     const char *mend)
{
    variables["UCX_GAUDI_DRIVER"] = fake_driver;
    return {name, variables, what, mend, {}};
}

std::vector<problem_case> every_problem()
{
    std::vector<problem_case> all{
        {"hidden",
         {{"HABANA_VISIBLE_DEVICES", "none"}},
         "HABANA_VISIBLE_DEVICES",
         "unset"},
        {"module", {{"HLS_MODULE_ID", "8"}}, "HLS_MODULE_ID=8", "variable"},
        {"table",
         {{"GAUDI_MAPPING_TABLE", "[\n[]]"}},
         "GAUDI_MAPPING_TABLE: entry 1",
         "variable"},
        {"memory_type",
         {{"UCX_GAUDI_MEMORY_TYPE", "gold"},
          {"UCX_LOG_FILE", "/dev/null"},
          {"UCX_LOG_LEVEL", "fatal"}},
         "UCX_GAUDI_MEMORY_TYPE=gold",
         "setting"},
        {"engine",
         {{"UCX_GAUDI_ENGINE", "foo"}},
         "UCX_GAUDI_ENGINE=foo",
         "setting"},
        {"timeout",
         {{"UCX_GAUDI_RESET_TIMEOUT", "soon"}},
         "UCX_GAUDI_RESET_TIMEOUT=soon",
         "setting"},
        {"routes",
         {{"UCX_GAUDI_IPC_ROUTES", "host,wire"}},
         "'wire'",
         "variable"},
        {"no_library",
         {{"UCX_GAUDI_DRIVER", "/no/such.so"}},
         "/no/such.so",
         "or unset it",
         {}},
        {"broken_library",
         {{"UCX_GAUDI_DRIVER", broken_driver}},
         "hlthunk_memory_unmap, hlthunk_wait_for_cs",
         "UCX_GAUDI_DRIVER",
         {}},
        {"box_without_cards",
         {{"UCX_GAUDI_DRIVER", "emulator"}, {"HLTHUNK_EMU_HBM", "1"}},
         "no card",
         "HLTHUNK_EMU_",
         {}},
        {"shared_devices",
         {{"UCX_SHM_DEVICES", "memory,gaudi?"}},
         "UCX_SHM_DEVICES leaves out gaudi_ipc",
         "add gaudi"},
        {"no_gaudi", {}, "no Gaudi", "--emulate", {}},
        of_fake("no_gaudi_of_driver", {{"FAKE_CARDS", "0"}}, "no Gaudi",
                "--emulate"),
        of_fake("node", {{"FAKE_NODE_ERROR", "13"}}, "Permission denied",
                "permissions"),
        of_fake("no_answer", {{"FAKE_INFO_ERROR", "19"}},
                "card 0 (00ff:19:00.0)", "reset"),
        of_fake("gaudi1", {{"FAKE_DEVICE_ID", "0x1000"}}, "0x1000", "release"),
        of_fake("gaudi3", {{"FAKE_DEVICE_ID", "0x1060"}}, "SynapseAI",
                "UCX_GAUDI_ENGINE=synapse"),
        of_fake("unknown_card",
                {{"FAKE_DEVICE_ID", "0x4711"}, {"FAKE_DEVICE_NAME", "3"}},
                "0x4711 HL-fake", "UCX_GAUDI_CARD_KIND"),
        of_fake("unknown_card_as_gaudi3",
                {{"FAKE_DEVICE_ID", "0x4711"},
                 {"FAKE_DEVICE_NAME", "3"},
                 {"UCX_GAUDI_CARD_KIND", "gaudi3"}},
                "SynapseAI", "UCX_GAUDI_ENGINE=synapse"),
        {"unknown_kind",
         {{"UCX_GAUDI_CARD_KIND", "gaudi4"}},
         "UCX_GAUDI_CARD_KIND=gaudi4",
         "setting"},
        /* What is known stays what it is. */
        of_fake(
            "gaudi3_as_gaudi2",
            {{"FAKE_DEVICE_ID", "0x1060"}, {"UCX_GAUDI_CARD_KIND", "gaudi2"}},
            "SynapseAI", "UCX_GAUDI_ENGINE=synapse"),
        of_fake("taken", {{"FAKE_CARDS", "2"}, {"FAKE_TAKEN", "1"}},
                "all 2 cards", "programs")};
    for (const char *driver : {"emulater", "", "libhl-thunk.so", "a\nb"}) {
        all.push_back({"bad_driver",
                       {{"UCX_GAUDI_DRIVER", driver}},
                       "auto, hlthunk, emulator",
                       "set it",
                       {}});
    }
    for (const char *status : {"1", "4", "5"}) {
        all.push_back(of_fake("in_reset", {{"FAKE_STATUS", status}},
                              "card 0 (00ff:19:00.0): in reset",
                              "UCX_GAUDI_RESET_TIMEOUT"));
    }
    for (const char *status : {"2", "3"}) {
        all.push_back(of_fake("broken", {{"FAKE_STATUS", status}},
                              "card 0 (00ff:19:00.0): disabled", "driver"));
    }
    return all;
}

} // namespace

TEST_P(info_of_problems, names_it_once_and_how_to_mend_it)
{
    GAUDI_NEEDS(cards_without_framework);
    const problem_case &one     = GetParam();
    const process_result result = look(one.options, one.variables);
    expect_missing(result, one.what, one.mend);
    EXPECT_TRUE(has_lines(1, "problem   ", result));
}

INSTANTIATE_TEST_SUITE_P(each, info_of_problems,
                         ::testing::ValuesIn(every_problem()),
                         [](const auto &of) {
                             return std::string(of.param.name) + "_" +
                                    std::to_string(of.index);
                         });

/* --- what it shows ---------------------------------------------------------*/

TEST_F(info, lists_the_cards_of_the_software_box)
{
    GAUDI_NEEDS(cards_without_framework);
    const process_result result = look({"--emulate=3"});
    EXPECT_TRUE(exited_with(0, result, {}, {"problem"}));
    for (unsigned i = 0; i < 3; ++i) {
        const std::string index = std::to_string(i);
        EXPECT_THAT(
            row(result, i),
            ContainsRegex("^" + index + " +" + index +
                          " +0000:[0-9a-f]{2}:00\\.0 +- +9[56]\\.[0-9]GiB "
                          "+9[56]\\.[0-9]GiB +free +-$"));
    }
    EXPECT_TRUE(has_lines(3, ":00.0 ", result));
    EXPECT_TRUE(has_lines(1, ", software cards", result));
}

TEST_F(info, shows_links_and_where_they_lead)
{
    const scratch_directory sys;
    const parsed_json all(
        look({"--emulate=3", "--json"},
             {{"HLTHUNK_EMU_SYSFS", sys.path("")}, {"HLTHUNK_EMU_PORTS", "y"}})
            .output);
    EXPECT_EQ(R"({"port":10,"state":"LinkUp","leads_to":"card",)"
              R"("module_id":2,"peer_port":16})",
              all.at({"cards", "0", "links", "10"}));
    EXPECT_EQ(R"("nothing")", all.at({"cards", "0", "links", "8", "leads_to"}));
}

TEST_F(info, calls_cards_as_the_transports_do)
{
    GAUDI_NEEDS(cards_without_framework);
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
    EXPECT_TRUE(exited_with(0, cards, {}, {"problem"}));
    EXPECT_TRUE(has_lines(2, ":00.0 ", cards));
    EXPECT_TRUE(has_lines(0, ":00.0 ",
                          with_file(emulated, {{"UCX_GAUDI_DRIVER", "/none"}})))
        << "the environment comes first";
    expect_missing(with_file("UCX_LOG_LEVEL=fatal\nUCX_GAUDI_ENGINE=steam"),
                   "UCX_GAUDI_ENGINE=steam", "setting");
}

TEST_F(info, has_settings_as_the_module_has_read_them)
{
    const scratch_directory files;
    (void)files.file("ucx.conf", "UCX_GAUDI_CARD_KIND=Gaudi3\n");
    const parsed_json all(
        look({"--emulate", "--json"},
             {{"UCX_CONFIG_DIR", files.path("")}, {"UCX_GAUDI_ENGINE", "CS"}})
            .output);
    EXPECT_EQ("\"cs\"", all.at({"driver", "engine"}));
    EXPECT_EQ("\"gaudi3\"", all.at({"driver", "card_kind"}));
}

TEST_F(info, lists_no_cards_where_no_module_answers)
{
    scratch_directory files;
    (void)files.file("libucp.so.0", "no library");
    const parsed_json all(
        look({"--emulate", "--json"}, {{"LD_LIBRARY_PATH", files.path(".")}})
            .output);
    EXPECT_EQ("false", all.at({"usable"}));
    EXPECT_EQ("null", all.at({"driver", "setting"}));
    EXPECT_EQ("[]", all.at({"cards"}));
    EXPECT_THAT(all.at({"problems"}), HasSubstr("no UCX"));
}

TEST_F(info, finds_protocols_that_cannot_be_used)
{
    GAUDI_NEEDS(cards_without_framework);
    const process_result result = emulating({{"UCX_PROTO_ENABLE", "No"}});
    if (has_old_protocols) {
        EXPECT_TRUE(exited_with(0, result));
    } else {
        expect_missing(result, "UCX_PROTO_ENABLE=n", "unset");
    }
}

TEST_F(info, shows_how_much_memory_there_is)
{
    GAUDI_NEEDS(cards_without_framework);
    EXPECT_THAT(row(look({"--emulate=1"}, {{"HLTHUNK_EMU_HBM", "144M"},
                                           {"HLTHUNK_EMU_DRAM_PAGE", "48M"}}),
                    0),
                ContainsRegex(" 96\\.0MiB +96\\.0MiB "));
}

TEST_F(info, shows_the_ucx_and_the_driver_library)
{
    const process_result result = emulating();
    EXPECT_THAT(result.output,
                ContainsRegex("\nucx       " GAUDI_UCX_VERSION
                              " at /.*libucp\\.so.* \\(of programs "
                              "without a run path\\)\n"));
    EXPECT_THAT(result.output, HasSubstr(std::string("driver    ") + library +
                                         "/hlthunk-emu/libhl-thunk.so "
                                         "(UCX_GAUDI_DRIVER=emulator), "
                                         "software cards\n"));
    EXPECT_THAT(result.output, HasSubstr(std::string("\nmodule    ") + library +
                                         "/ucx-gaudi/" GAUDI_UCX_RELEASE
                                         "/libuct_hlthunk.so.0 (installed: "));
}

TEST_F(info, tells_whether_the_loader_is_active)
{
    GAUDI_NEEDS(cards_without_framework);
    const arguments look_inside = {launcher, "info"};
    const auto expect = [](const process_result &result, const char *preload) {
        EXPECT_TRUE(exited_with(
            0, result,
            {std::string("\npreload   ") + preload + " " + preloaded_name()}));
    };
    expect(emulating(), "not active");
    expect(emulated(look_inside), "active    ");
    expect(launched(look_inside, {"--emulate", "--slot"}), "not active");
}

TEST_F(info, asks_the_ucx_of_a_program)
{
    EXPECT_THAT(look({"--", "ucx_info"}).output,
                ContainsRegex("\nucx       " GAUDI_UCX_VERSION
                              " at /.*libucp\\.so.* \\(of ucx_info\\)\n"));
    EXPECT_THAT(look({"sh", "-c", "exit 1"}).output,
                HasSubstr("sh is not linked with one)\n"));
    /* A UCX that only its run path leads to. */
    scratch_directory files;
    make_ucx(files, "other", "1.21.7");
    const std::string program = files.path("program");
    fs::copy_file("/bin/true", program);
    for (const arguments &change :
         {arguments{"--set-rpath", files.path("other")},
          arguments{"--add-needed", "libucp.so.0"}}) {
        ASSERT_TRUE(is_quiet_success(
            run(joined(joined({"patchelf"}, change), {program}), with())));
    }
    EXPECT_THAT(look({program}).output,
                HasSubstr("ucx       1.21.7 at " + files.path("other")));
}

TEST_F(info, writes_the_same_facts_as_json)
{
    GAUDI_NEEDS(cards_without_framework);
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
    EXPECT_EQ("\"active\"", all.at({"loading", "state"}));
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
    EXPECT_EQ("[]", all.at({"pairs"}));
    EXPECT_THAT(all.at({"problems", "0", "what"}), HasSubstr("no Gaudi"));
    EXPECT_THAT(all.at({"problems", "0", "fix"}), HasSubstr("--emulate"));
}

TEST_F(info, tells_over_which_wire_each_pair_of_cards_goes)
{
    const auto pairs = [&](const environment &variables) {
        return parsed_json(look({"--emulate=2", "--json"}, variables).output)
            .at({"pairs"});
    };
    const std::string of_cards = R"("cards":[[0,1]]})";
    for (const auto &[variables, way] :
         {std::pair{environment{}, "host"},
          {environment{{"UCX_GAUDI_IPC_ROUTES", "host"}}, "host"},
          {environment{{"HLTHUNK_EMU_PORTS", "y"}}, "ports"}}) {
        EXPECT_THAT(pairs(variables),
                    ::testing::AllOf(
                        HasSubstr(std::string(R"([{"way":")") + way + "\""),
                        HasSubstr(of_cards)));
    }
    EXPECT_TRUE(
        has_lines(1, "pairs     host for all 3", look({"--emulate=3"})));
}

TEST_F(info, shows_who_has_a_card)
{
    GAUDI_NEEDS(cards_without_framework);
    const process_result result =
        launched({late_ucx, "hold", launcher, "info"}, {"--emulate=2"});
    EXPECT_TRUE(exited_with(0, result, {}, {"problem"}));
    EXPECT_THAT(row(result, 0), ContainsRegex(" ours +pid [0-9]+ "
                                              "\\(late_ucx\\)$"));
    EXPECT_THAT(row(result, 1), ContainsRegex(" free +-$"));
}

/* --- what it finds missing -------------------------------------------------*/

TEST_F(info, fails_when_every_card_is_taken)
{
    GAUDI_NEEDS(cards_without_framework);
    const process_result result =
        launched({late_ucx, "hold", launcher, "info"}, {"--emulate=1"});
    expect_missing(result, "(late_ucx)", "programs");
}

TEST_F(info, does_not_guess_what_an_old_library_cannot_tell)
{
    const process_result result = with_driver(old_driver);
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(row(result, 0), ContainsRegex(" unknown +-$"));
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

TEST_F(info, takes_an_unknown_card_for_what_it_is_told)
{
    EXPECT_TRUE(exited_with(
        0, with_driver(fake_driver, {{"FAKE_DEVICE_ID", "0x4711"},
                                     {"FAKE_DEVICE_NAME", "3"},
                                     {"UCX_GAUDI_CARD_KIND", "Gaudi2"}})));
}

TEST_F(info, tells_a_cause_once_for_all_cards)
{
    const auto missing = [&](const environment &variables) {
        return lines_with(with_driver(fake_driver, variables).output,
                          "problem   ");
    };
    EXPECT_THAT(
        missing({{"FAKE_CARDS", "3"}, {"FAKE_STATUS", "1,2,4"}}),
        ElementsAre(HasSubstr("card 0 (00ff:19:00.0), 2 (00ff:1b:00.0): "),
                    HasSubstr("card 1 (00ff:1a:00.0)")));
    /* Taken are those alone that somebody has. */
    EXPECT_THAT(missing({{"FAKE_CARDS", "3"},
                         {"FAKE_TAKEN", "1,0,1"},
                         {"FAKE_STATUS", "0,2,0"}}),
                ElementsAre(HasSubstr("disabled"),
                            ContainsRegex("2 other cards .*0 by [^;]*; 2 by "
                                          "[^;]*$")));
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
            {}, {"problem"}));
    }
}

TEST_F(info, tells_in_one_line_how_a_gaudi3_is_used)
{
    scratch_directory files;
    (void)files.file("libSynapse.so", "no library");
    struct {
        const char *asic;
        const char *engine;
        std::string folder;
        const char *mend;
    } const cases[] = {
        {"gaudi3", "auto", synapse_folder, "UCX_GAUDI_ENGINE=synapse$"},
        {"gaudi3", "cs", synapse_folder, "UCX_GAUDI_ENGINE=synapse, or unset"},
        {"gaudi3", "auto", files.path("."), "libSynapse.so cannot be loaded"},
        {"gaudi3", "synapse", files.path("."), "LD_LIBRARY_PATH$"},
        {"gaudi2", "synapse", files.path("."), "or unset UCX_GAUDI_ENGINE"}};
    for (const auto &[asic, engine, folder, mend] : cases) {
        SCOPED_TRACE(std::string(asic) + " " + engine + " " + folder);
        const process_result result = emulating({{"HLTHUNK_EMU_ASIC", asic},
                                                 {"UCX_GAUDI_ENGINE", engine},
                                                 {"LD_LIBRARY_PATH", folder}});
        EXPECT_TRUE(exited_with(1, result));
        EXPECT_TRUE(has_lines(1, "problem   ", result));
        EXPECT_THAT(lines_with(result.output, "fix:      "),
                    ElementsAre(ContainsRegex(mend)));
    }
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
    expect_missing(result, "no UCX", "install UCX ");
    EXPECT_THAT(result.output, HasSubstr("\nucx       none (of "));
    EXPECT_THAT(result.output, HasSubstr("\nmodule    none (installed: "));
}

TEST_F(info, explains_another_ucx_version)
{
    scratch_directory files;
    for (const std::string version : {"9.9.9", "1.9.0"}) {
        make_ucx(files, version, version);
        const process_result result =
            emulating({{"LD_LIBRARY_PATH", files.path(version)}});
        expect_missing(result, "UCX " + version + " at ",
                       (version == "9.9.9") ? "source of UCX 9.9 " : "1.13");
        EXPECT_THAT(result.output, HasSubstr("\nmodule    none (installed: "));
    }
}

TEST_F(info, notices_a_module_that_cannot_be_used)
{
    GAUDI_NEEDS(cards_without_framework);
    const copied_installation copy;
    const std::string module =
        copy.path("ucx-gaudi/" GAUDI_UCX_RELEASE "/libuct_hlthunk.so.0");
    const auto expect_unusable = [&](const process_result &result,
                                     const auto &reason) {
        expect_missing(result, "UCX " GAUDI_UCX_VERSION " at ", "again");
        EXPECT_THAT(lines_with(result.output, "problem   ").at(0), reason);
    };
    const auto replace_by = [&](const char *file) {
        fs::copy_file(file, module, fs::copy_options::overwrite_existing);
    };

    const std::string layout =
        copy.path("ucx-gaudi/" GAUDI_UCX_RELEASE "/layout");
    fs::copy_file(layout, layout + ".saved");
    std::ofstream(layout) << "lacks ucp_get_version\n";
    expect_unusable(of(copy), HasSubstr("ucp_get_version is new"));
    fs::rename(layout + ".saved", layout);
    replace_by(GAUDI_TOOLS_DIR "/libbroken_module.so");
    expect_unusable(of(copy), HasSubstr("nobody_has_this_function"));
    replace_by("/etc/os-release");
    expect_unusable(of(copy), HasSubstr("invalid ELF header"));
    replace_by(GAUDI_TOOLS_DIR "/libstand_in_module.so");
    expect_unusable(of(copy, {{"STAND_IN_ENDS", "1"}}),
                    ContainsRegex("ends by signal 9$"));
    expect_unusable(of(copy, {{"STAND_IN_ENDS", "1"},
                              {"STAND_IN_SAYS",
                               "a line\n[1.2] [vm:1:0]  some.c:103  UCX  ERROR "
                               "it is Friday\nmore"}}),
                    ContainsRegex("signal 9: it is Friday$"));
}

/* One that crashes when it is loaded, in the first call, and one that does not
 * answer. */
TEST_F(info, goes_on_without_a_driver_library_that_ends_its_process)
{
    constexpr char driver[] = GAUDI_TOOLS_DIR "/libbad_driver.so";
    const struct {
        const char *how;
        const char *what;
    } cases[] = {
        {"fatal", "signal 11"}, {"control", "signal 6"}, {"deaf", "hangs"}};
    for (const auto &[how, what] : cases) {
        SCOPED_TRACE(how);
        const process_result result =
            look({}, {{"UCX_GAUDI_DRIVER", driver}, {"BAD_DRIVER", how}});
        expect_missing(
            result, what + std::string(" while loading and asking ") + driver,
            "UCX_GAUDI_DRIVER");
        EXPECT_TRUE(has_lines(1, "problem   ", result));
        EXPECT_THAT(result.output, HasSubstr("\nucx       " GAUDI_UCX_VERSION));
        EXPECT_THAT(result.output,
                    HasSubstr("/libuct_hlthunk.so.0 (installed"));
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
    GAUDI_NEEDS(cards_without_framework);
    struct {
        const char *part;
        const char *what;
        const char *mend;
    } const cases[] = {
        {"libucx_gaudi_preload.so", "libucx_gaudi_preload.so", "ucx-gaudi"},
        {"libuct_hlthunk.so.0", "libuct_hlthunk.so.0", "ucx-gaudi"},
        {"ucx-gaudi/" GAUDI_UCX_RELEASE, "UCX " GAUDI_UCX_VERSION, "build"},
        {"hlthunk-emu/libhl-thunk.so", "hlthunk-emu/libhl-thunk.so",
         "hl-thunk-emulator"},
    };
    for (const auto &[part, what, mend] : cases) {
        SCOPED_TRACE(part);
        const copied_installation copy;
        copy.remove(part);
        const process_result result = of(copy);
        expect_missing(result, what, mend);
        EXPECT_TRUE(has_lines(1, "problem   ", result));
    }
}

TEST_F(info, notices_a_place_from_which_nothing_can_be_loaded)
{
    GAUDI_NEEDS(cards_without_framework);
    const copied_installation spaces("with a space");
    if (ucx_is_before(1, 22)) {
        expect_missing(of(spaces), "LD_PRELOAD", "move");
    }
    scratch_directory files;
    make_ucx(files, "new", "9.8.3");
    const std::string plugin = spaces.path("ucx-gaudi/plugin");
    EXPECT_THAT(of(spaces, {{"LD_LIBRARY_PATH", files.path("new")},
                            {"UCX_PLUGIN_PATH", "/a:" + plugin + ":/b"}})
                    .output,
                HasSubstr("\nplugin    active     " + plugin + "\n"));

    const copied_installation colon("with:colon");
    expect_missing(of(colon), "LD_PRELOAD", "move");
}

/* As the loader does. */
TEST_F(info, shows_the_module_that_was_built_for_this_ucx)
{
    const copied_installation copy;
    const std::string folder = copy.path("ucx-gaudi/" GAUDI_UCX_RELEASE);
    fs::copy(folder, folder + "-0a1b2c");
    std::ofstream(folder + "/layout") << "lacks ucp_get_version\n";
    const process_result result = of(copy);
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(result.output, HasSubstr("\nmodule    " + folder + "-0a1b2c/"));
}

} // namespace gaudi::test
