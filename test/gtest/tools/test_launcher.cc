/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx-gaudi changes the environment and nothing else. */
#include "common/needs.h"
#include "gtest/tools/installations.h"

#include <optional>
#include <regex>

#include <unistd.h>

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::Not;

class command_line : public tools {
protected:
    /* The value that a launched program sees. */
    [[nodiscard]] std::string seen(const std::string &variable,
                                   const arguments &options,
                                   const environment &variables = {}) const
    {
        const process_result result =
            launched({"printenv", variable}, options, variables);
        return result.output.substr(0, result.output.find('\n'));
    }

    /* Run a script in which "env" stands for `ucx-gaudi env`. */
    [[nodiscard]] process_result script(const std::string &text,
                                        const environment &variables = {}) const
    {
        return run(
            {"sh", "-c",
             std::string("env() { '") + launcher + "' env \"$@\"; }; " + text},
            with(variables));
    }

    const std::string stub       = preloaded_name();
    const std::string emulator   = std::string(library) + "/hlthunk-emu";
    const std::string slot       = std::string(library) + "/ucx-gaudi/slot";
    const std::string components = std::string(library) + "/ucx-gaudi/openmpi";
    const std::string of_openmpi =
        "export OMPI_MCA_opal_common_ucx_tls='any'\n"
        "export OMPI_MCA_opal_common_ucx_devices='any'\n"
        "export OMPI_MCA_pml='^none'\n"
        "export OMPI_MCA_osc='^pt2pt'\n"
        "export OMPI_MCA_pml_ucx_priority='200'\n"
        "export OMPI_MCA_osc_ucx_priority='200'\n"
        "export OMPI_MCA_opal_mca_base_component_path='" +
        components + ":SYS_DEFAULT:USER_DEFAULT'\n";
};

} // namespace

TEST_F(command_line, says_in_one_line_what_is_wrong)
{
    struct {
        arguments words;
        const char *said;
    } const cases[] = {
        {{"bogus"}, ": bogus"},
        {{"-V"}, ": -V"},
        {{"--", "env"}, "run, env, info or check"},
        {{"env", "--bogus"}, ": --bogus"},
        {{"env", "--slot=2"}, ": --slot=2"},
        {{"env", "info"}, ": info"},
        {{"env", "--emulate", "2", "3"}, ": 3"},
        {{"env", "two\nlines"}, ": two?lines"},
        {{"env", "--"}, "command"},
        {{"env", "--emulate", "65"}, "1 to 64"},
        {{"env", "--emulate=-1"}, "'-1'"},
        {{"env", "--emulate=1.5"}, "'1.5'"},
        {{"env", "--emulate=99999999999"}, "'99999999999'"},
        {{"env", "--emulate="}, "''"},
        {{"env", "--emulate", "--emulate=2"}, "twice"},
        {{"run", "-", "echo", "it ran"}, ": -"},
        {{"run", "", "echo", "it ran"}, "empty"},
        {{"run", "--emulate=0", "--", "echo", "it ran"}, "'0'"},
        {{"run", "--no-such-option", "--", "echo", "it ran"}, ": --no-such"},
        {{"run"}, "no command"},
        {{"run", "--emulate", "--"}, "no command"},
        {{"info", "--slot"}, ": --slot"},
        {{"check", "--", "echo", "it ran"}, "command"},
        {{"check", "--json"}, ": --json"},
        {{"check", "--card", "x"}, "0 to 9999"},
        {{"check", "--timeout=1"}, "2 to 3600"},
    };
    for (const auto &[words, said] : cases) {
        SCOPED_TRACE(::testing::PrintToString(words));
        const process_result result = run(joined({launcher}, words), with());
        EXPECT_TRUE(exited_with(2, result, {said}, {"it ran\n", "export"}));
        EXPECT_THAT(result.output,
                    ::testing::MatchesRegex(
                        "ucx-gaudi: [^\n]*\nSee ucx-gaudi [^\n]*--help.\n"));
    }
    EXPECT_TRUE(exited_with(2, run({launcher}, with()), {"subcommand"}));
}

TEST_F(command_line, helps_whatever_else_is_wrong)
{
    for (const arguments &words :
         {arguments{"--help", "run"}, arguments{"run", "-h", "echo", "it ran"},
          arguments{"run", "--bogus", "--emulate=65", "--help"}}) {
        EXPECT_TRUE(exited_with(0, run(joined({launcher}, words), with()),
                                {"Usage: ucx-gaudi run "}));
    }
}

TEST_F(command_line, explains_itself)
{
    const process_result general = run({launcher, "--help"}, with());
    EXPECT_TRUE(exited_with(0, general, {"run", "env", "info", "check"}));
    for (const char *name : {"run", "env", "info", "check"}) {
        EXPECT_TRUE(exited_with(0, run({launcher, name, "--help"}, with()),
                                {"--emulate [=CARDS]", "Exit code"}));
    }
    EXPECT_THAT(run({launcher, "--version"}, with()).output,
                ::testing::ContainsRegex("^ucx-gaudi [0-9.]+\nmodules for UCX "
                                         "(.*, )?" GAUDI_UCX_RELEASE));
}

TEST_F(command_line, needs_no_dashes_in_front_of_the_command)
{
    for (const char *options :
         {"", "--", "--slot", "--emulate", "--emulate --", "--emulate=2",
          "--emulate 2", "--emulate 2 --"}) {
        const process_result result =
            run(joined(joined({launcher, "run"}, words(options)),
                       {"printf", "%s.", "--emulate=9", "--", "--help"}),
                with());
        EXPECT_TRUE(exited_with(0, result));
        EXPECT_EQ("--emulate=9.--.--help.", result.output);
    }
}

TEST_F(command_line, exits_as_a_shell_does_when_the_command_cannot_run)
{
    scratch_directory files;
    const std::string plain = files.file("plain", "text");
    EXPECT_TRUE(exited_with(127, emulated({"no-such-command-at-all"}),
                            {"no-such-command-at-all"}));
    EXPECT_TRUE(exited_with(126, emulated({plain}), {plain}));
    EXPECT_TRUE(exited_with(126, emulated({files.path(".")})));
    EXPECT_TRUE(exited_with(127, emulated({files.path("missing")})));
    EXPECT_TRUE(exited_with(127, emulated({""})));
}

TEST_F(command_line, passes_the_exit_code_on)
{
    for (const int code : {0, 1, 7, 105, 255}) {
        EXPECT_TRUE(exited_with(
            code, emulated({"sh", "-c", "exit " + std::to_string(code)})));
    }
    EXPECT_EQ(9, emulated({"sh", "-c", "kill -9 $$"}).signal);
}

TEST_F(command_line, passes_every_argument_on)
{
    const arguments words = {"--help", "--emulate=3", "--version", "-h",
                             "",       "two words",   "--",        "a\nb",
                             "run",    "--no-such",   "*",         "$HOME",
                             "-",      "\\",          "'",         "\""};
    arguments command     = {"printf", "<%s>"};
    std::string expected;
    for (const std::string &word : words) {
        command.push_back(word);
        expected += "<" + word + ">";
    }
    const process_result result = emulated(command);
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ(expected, result.output);
}

TEST_F(command_line, passes_stdin_on)
{
    process_options options     = with();
    options.input               = "first\nsecond\n";
    const process_result result = run(under_launcher({"cat"}), options);
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ(options.input, result.output);
}

TEST_F(command_line, sets_what_is_needed_and_keeps_the_rest)
{
    GAUDI_NEEDS(lone_driver);
    const std::string other =
        preloadable(std::string(GAUDI_TOOLS_DIR "/no-module/") + preloaded);
    const arguments none, emulate{"--emulate"}, in_slot{"--slot"};
    const arguments both{"--slot", "--emulate"};
    const struct {
        const char *variable;
        arguments options;
        std::optional<std::string> before;
        std::string after;
    } cases[] = {
        {"LD_PRELOAD", none, {}, stub},
        {"LD_PRELOAD", none, "", stub},
        {"LD_PRELOAD", none, "libm.so.6", stub + ":libm.so.6"},
        /* That of another installation, or behind what has to be first. */
        {"LD_PRELOAD", none, other + " libm.so.6", stub + ":libm.so.6"},
        {"LD_PRELOAD", none, "libm.so.6:" + stub, "libm.so.6:" + stub},
        {"LD_PRELOAD", in_slot, {}, ""},
        {"LD_PRELOAD", in_slot, "libm.so.6", "libm.so.6"},
        {"LD_PRELOAD", in_slot, stub, stub},
        {"UCX_GAUDI_DRIVER", none, {}, ""},
        {"UCX_GAUDI_DRIVER", emulate, {}, "emulator"},
        {"HLTHUNK_EMU_DEVICES", none, {}, ""},
        {"HLTHUNK_EMU_DEVICES", emulate, {}, "8"},
        {"HLTHUNK_EMU_DEVICES", emulate, "3", "3"},
        {"HLTHUNK_EMU_DEVICES", {"--emulate=5"}, "3", "5"},
        {"HLTHUNK_EMU_DEVICES", {"--emulate=64"}, {}, "64"},
        {"LD_LIBRARY_PATH", none, {}, ""},
        {"LD_LIBRARY_PATH", emulate, "/a:/b", emulator + ":/a:/b"},
        {"LD_LIBRARY_PATH", in_slot, {}, slot},
        {"LD_LIBRARY_PATH", both, "/a;/b", slot + ":" + emulator + ":/a:/b"},
        /* Its directories come first, and once. */
        {"LD_LIBRARY_PATH", both, "/a:" + emulator + "::" + slot + ":/b",
         slot + ":" + emulator + ":/a::/b"},
        {"UCX_TLS", emulate, "tcp,sm", "tcp,sm"},
        /* Also words that UCX cannot read, until a program has UCX. */
        {"UCX_TLS", emulate, "gaudi_copy,sm", "gaudi_copy,sm"},
        {"UCX_TLS", in_slot, "gaudi_copy,sm", "gaudi_cpy,sm"},
        {"UCX_TLS", in_slot, "^gaudi", "^gaudi_cpy,gaudi_ipc"},
        {"UCX_TLS", in_slot, {}, ""},
        {"UCX_GAUDI_DEVICES", emulate, "all", "all"},
        {"OMPI_MCA_accelerator", none, "cuda", "cuda"},
    };
    for (const auto &[variable, options, before, after] : cases) {
        SCOPED_TRACE(std::string(variable) + ::testing::PrintToString(options) +
                     before.value_or(""));
        EXPECT_EQ(after, seen(variable, options,
                              before ? environment{{variable, *before}}
                                     : environment{}));
    }
}

TEST_F(command_line, nested_adds_nothing_twice)
{
    GAUDI_NEEDS(lone_driver);
    const process_result result =
        launched(under_launcher(under_launcher({"env"})), {});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ(std::vector<std::string>{"LD_PRELOAD=" + stub},
              lines_with(result.output, "LD_PRELOAD="));
    EXPECT_EQ(std::vector<std::string>{"LD_LIBRARY_PATH=" + emulator},
              lines_with(result.output, "LD_LIBRARY_PATH="));

    const process_result info = emulated(under_launcher({"ucx_info", "-d"}));
    EXPECT_TRUE(is_quiet_success(info));
    EXPECT_TRUE(has_lines(1, "System device: gaudi", info));
}

TEST_F(command_line, works_through_a_symbolic_link_and_from_another_folder)
{
    GAUDI_NEEDS(lone_driver);
    scratch_directory files;
    const std::string link = files.path("ucx-gaudi");
    ASSERT_EQ(0, symlink(launcher, link.c_str()));
    const process_result result =
        run({"sh", "-c", "cd / && " + link + " run -- printenv LD_PRELOAD"},
            with());
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ(stub + "\n", result.output);
}

TEST_F(command_line, in_a_slot_refuses_to_mix_two_ucx)
{
    scratch_directory files;
    const std::string other = files.file("libucs.so.0", "another one");
    EXPECT_TRUE(
        exited_with(1,
                    launched({"echo", "it ran"}, {"--slot"},
                             {{"LD_LIBRARY_PATH", "/a:" + files.path(".")}}),
                    {"LD_LIBRARY_PATH", files.path(".")}, {"it ran"}));
}

TEST_F(command_line, says_what_is_missing_in_an_incomplete_installation)
{
    static constexpr char emulator_part[] = "hlthunk-emu/libhl-thunk.so";
    struct {
        const char *part;
        arguments options;
    } const cases[] = {
        {preloaded, {}},
        {"libuct_hlthunk.so.0", {}},
        {"libuct_hlthunk.so.0", {"--slot"}},
        {"ucx-gaudi", {}},
        {"ucx-gaudi", {"--slot"}},
        {"ucx-gaudi/slot", {"--slot"}},
        {"ucx-gaudi/slot/ucx", {"--slot"}},
        {emulator_part, {"--emulate"}},
        {emulator_part, {"--emulate", "--slot"}},
    };
    for (const auto &[part, options] : cases) {
        SCOPED_TRACE(part);
        const copied_installation copy;
        copy.remove(part);
        for (const char *subcommand : {"run", "env"}) {
            arguments command = joined({copy.launcher(), subcommand}, options);
            if (subcommand == std::string("run")) {
                command = joined(command, {"--", "echo", "it ran"});
            }
            EXPECT_TRUE(
                exited_with(1, run(command, with()),
                            {std::string(part).substr(0, 4),
                             (part == emulator_part) ? "hl-thunk-emulator"
                                                     : "install ucx-gaudi"},
                            {"it ran", "export"}));
        }
    }
}

TEST_F(command_line, says_which_paths_the_loader_cannot_be_given)
{
    struct {
        const char *directory;
        const char *variable;
        arguments options;
    } const cases[] = {
        {"$ORIGIN", "LD_PRELOAD", {}},
        {"a:colon", "LD_PRELOAD", {}},
        {"a:colon", "LD_LIBRARY_PATH", {"--slot"}},
        {"a;semicolon", "LD_LIBRARY_PATH", {"--slot"}},
        {"$LIB", "LD_LIBRARY_PATH", {"--slot"}},
        {"a;semicolon", "LD_LIBRARY_PATH", {"--emulate"}},
    };
    for (const auto &[directory, variable, options] : cases) {
        SCOPED_TRACE(directory);
        const copied_installation copy(directory);
        EXPECT_TRUE(exited_with(
            1, run(joined({copy.launcher(), "env"}, options), with()),
            {variable}, {"export"}));
    }
}

/* --- a UCX that is not the installed one -----------------------------------*/

class with_another_ucx : public command_line {
protected:
    scratch_directory files;
};

/* LD_PRELOAD cannot name its loader. */
TEST_F(with_another_ucx, finds_the_plugin_folder_of_a_path_with_spaces)
{
    const copied_installation copy("a space");
    const std::string plugin = copy.path("ucx-gaudi/plugin");
    const auto env           = [&](const std::string &version,
                         environment variables = {}) {
        make_ucx(files, version, version);
        variables["LD_LIBRARY_PATH"] = files.path(version);
        return run({copy.launcher(), "env"}, with(variables));
    };
    EXPECT_THAT(env("1.22.0").output,
                HasSubstr("export UCX_PLUGIN_PATH='" + plugin +
                          "'\nexport OMPI_MCA_opal_common_ucx_tls="));
    EXPECT_THAT(env("1.23.1", {{"UCX_PLUGIN_PATH", "/a b::" + plugin + ":/c;d"},
                               {"UCX_TLS", "gaudi_copy,sm"}})
                    .output,
                HasSubstr("export UCX_PLUGIN_PATH='" + plugin +
                          ":/a b::/c;d'\n"
                          "export UCX_TLS='gaudi_cpy,sm'\n"
                          "export OMPI_MCA_opal_common_ucx_tls="));
    for (const char *version : {"1.13.1", "1.21.0"}) {
        SCOPED_TRACE(version);
        EXPECT_TRUE(exited_with(1, env(version), {"LD_PRELOAD"}, {"export"}));
    }
}

TEST_F(with_another_ucx, a_slot_is_not_for_it)
{
    make_ucx(files, "other", "1.20.0");
    const std::string other = files.path("other");
    EXPECT_TRUE(exited_with(
        1, run({launcher, "env", "--slot"}, with({{"LD_LIBRARY_PATH", other}})),
        {"the slot is for ", other + "/libucs.so.0"}, {"export"}));
}

/* --- env -------------------------------------------------------------------*/

TEST_F(command_line, env_prints_exports_and_nothing_else)
{
    GAUDI_NEEDS(lone_driver);
    const process_result result =
        run({launcher, "env", "--emulate=3", "--slot"}, with());
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ("export UCX_GAUDI_DRIVER='emulator'\n"
              "export HLTHUNK_EMU_DEVICES='3'\n"
              "export LD_LIBRARY_PATH='" +
                  slot + ":" + emulator + "'\n" + of_openmpi,
              result.output);
    EXPECT_EQ("export LD_PRELOAD='" + stub + "'\n" + of_openmpi,
              run({launcher, "env"}, with()).output);
}

TEST_F(command_line, leaves_what_is_set_for_open_mpi)
{
    const auto set = [&](const environment &before) {
        const process_result result = run(
            {launcher, "run", "sh", "-c", "echo $OMPI_MCA_pml $OMPI_MCA_osc"},
            with(before));
        EXPECT_TRUE(exited_with(0, result));
        return result.output;
    };
    EXPECT_EQ("ucx ucx\n", set({{"OMPI_MCA_osc", ""}}));
    EXPECT_EQ("ucx ucx\n", set({{"OMPI_MCA_pml", "ucx"}}));
    EXPECT_EQ("ucx ucx\n",
              set({{"OMPI_MCA_pml", "^none"}, {"OMPI_MCA_osc", "^pt2pt"}}))
        << "of env";
    EXPECT_EQ("ucx rdma\n", set({{"OMPI_MCA_osc", "rdma"}}));
    /* Windows go the way of the messages, if that is chosen. */
    EXPECT_EQ("ob1\n", set({{"OMPI_MCA_pml", "ob1"}}));
    EXPECT_THAT(run({launcher, "env"}, with({{"OMPI_MCA_pml", "ob1"}})).output,
                Not(HasSubstr("ucx_priority")));
    EXPECT_EQ("ob1 ucx\n",
              set({{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_osc", "ucx"}}));
}

TEST_F(command_line, adds_components_for_open_mpi_to_what_it_searches)
{
    const char *const path       = "OMPI_MCA_opal_mca_base_component_path";
    const char *const short_path = "OMPI_MCA_mca_base_component_path";
    const auto search            = [&](const environment &before) {
        return seen(path, {}, before);
    };
    EXPECT_EQ(components + ":SYS_DEFAULT:USER_DEFAULT", search({}));
    EXPECT_EQ(components + ":/a:/b", search({{path, "/a:/b"}}));
    EXPECT_EQ(components + ":/c", search({{short_path, "/c"}}));
    EXPECT_EQ(components + ":/a", search({{path, "/a"}, {short_path, "/c"}}));
    /* Once, however often. */
    EXPECT_EQ(components + ":SYS_DEFAULT:USER_DEFAULT",
              search({{path, search({})}}));
}

TEST_F(command_line, env_sets_what_run_sets)
{
    const environment before = {{"LD_PRELOAD", "libm.so.6"},
                                {"LD_LIBRARY_PATH", "/a;/b c:"},
                                {"HLTHUNK_EMU_DEVICES", "4"},
                                {"UCX_TLS", "gaudi_copy,sm"}};
    const char *const names  = "LD_PRELOAD LD_LIBRARY_PATH UCX_GAUDI_DRIVER "
                               "HLTHUNK_EMU_DEVICES UCX_TLS";
    const std::string show   = std::string("for n in ") + names +
                             "; do printf '%s=<%s>\\n' $n \"$(printenv $n)\"; "
                             "done";
    for (const arguments &options :
         {arguments{}, arguments{"--slot"}, arguments{"--emulate"},
          arguments{"--emulate=2"}, arguments{"--emulate", "--slot"}}) {
        std::string flags;
        for (const std::string &option : options) {
            flags += " " + option;
        }
        SCOPED_TRACE(flags);
        const process_result seen_by_run =
            launched({"sh", "-c", show}, options, before);
        const std::string set = "eval \"$(env" + flags + ")\"; ";
        const std::string child =
            "sh -c '" + std::regex_replace(show, std::regex("'"), "'\\''") +
            "'";
        EXPECT_TRUE(exited_with(0, seen_by_run));
        EXPECT_EQ(seen_by_run.output, script(set + child, before).output);
        EXPECT_EQ(seen_by_run.output, script(set + set + child, before).output)
            << "evaluated twice";
    }
}

TEST_F(command_line, env_keeps_every_character)
{
    const std::string old =
        "/it's:/a \"b\":/$(echo no):/`echo no`:/two\nlines:/*:\\:/e=f !#~";
    const process_result result =
        script("eval \"$(env --slot)\"; printf '%s' \"$LD_LIBRARY_PATH\"",
               {{"LD_LIBRARY_PATH", old}});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ(slot + ":" + old, result.output);
}

TEST_F(command_line, says_so_when_it_cannot_write)
{
    EXPECT_TRUE(
        exited_with(1, script("env > /dev/full"), {"ucx-gaudi: cannot write"}));
}

} // namespace gaudi::test
