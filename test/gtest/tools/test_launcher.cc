/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx-gaudi changes the environment and nothing else. */
#include "gtest/tools/installations.h"

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
        "export OMPI_MCA_pml='ucx'\n"
        "export OMPI_MCA_osc='ucx'\n"
        "export OMPI_MCA_opal_common_ucx_tls='any'\n"
        "export OMPI_MCA_opal_common_ucx_devices='any'\n"
        "export OMPI_MCA_accelerator='^cuda,rocm'\n"
        "export OMPI_MCA_opal_mca_base_component_path='" +
        components + ":SYS_DEFAULT:USER_DEFAULT'\n";
};

} // namespace

TEST_F(command_line, without_a_subcommand_is_an_error)
{
    EXPECT_TRUE(exited_with(2, run({launcher}, with()), {"subcommand"}));
}

TEST_F(command_line, names_a_word_that_it_does_not_know)
{
    for (const char *word : {"bogus", "version", "-V"}) {
        EXPECT_TRUE(exited_with(2, run({launcher, word}, with()),
                                {std::string(": ") + word + "\n"}));
    }
}

TEST_F(command_line, says_in_one_line_what_is_wrong)
{
    struct {
        arguments words;
        const char *said;
    } const cases[] = {
        {{"env", "--bogus"}, "unexpected argument: --bogus"},
        {{"env", "--emu=2"}, "unexpected argument: --emu=2"},
        {{"env", "--slot=2"}, "unexpected argument: --slot=2"},
        {{"env", "--json"}, "unexpected argument: --json"},
        {{"env", "--version"}, "unexpected argument: --version"},
        {{"env", "info"}, "unexpected argument: info"},
        {{"env", "--emulate", "2", "3"}, "unexpected argument: 3"},
        {{"env", "two\nlines"}, "unexpected argument: two?lines"},
        {{"run", "-", "echo", "it ran"}, "unexpected argument: -"},
        {{"run", "", "echo", "it ran"}, "an argument is empty"},
        {{"env", "--emulate", "65"}, "--emulate takes 1 to 64 cards, not '65'"},
        {{"env", "--emulate", "--emulate=2"}, "--emulate is given twice"},
        {{"env", "--plugin"}, "unexpected argument: --plugin"},
        {{"--", "env"}, "a subcommand is required: run, env, info or check"},
        {{"check", "--json"}, "unexpected argument: --json"},
        {{"check", "--card", "x"}, "--card takes 0 to 9999, not 'x'"},
        {{"check", "--timeout=1"}, "--timeout takes 2 to 3600, not '1'"},
        {{"env", "--"}, "only run takes a command"},
    };
    for (const auto &[words, said] : cases) {
        SCOPED_TRACE(said);
        const process_result result = run(joined({launcher}, words), with());
        EXPECT_TRUE(exited_with(2, result));
        const std::string help =
            (words[0] == "--") ? "" : words[0] + std::string(" ");
        EXPECT_EQ(std::string("ucx-gaudi: ") + said + "\nSee ucx-gaudi " +
                      help + "--help.\n",
                  result.output);
    }
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
    EXPECT_TRUE(exited_with(0, general));
    for (const char *name : {"run", "env", "info", "check"}) {
        SCOPED_TRACE(name);
        EXPECT_THAT(general.output, HasSubstr(name));
        EXPECT_TRUE(exited_with(0, run({launcher, name, "--help"}, with()),
                                {"--emulate [=CARDS]", "Exit code"}));
    }
    const process_result version = run({launcher, "--version"}, with());
    EXPECT_TRUE(exited_with(0, version));
    EXPECT_THAT(version.output,
                ::testing::ContainsRegex("^ucx-gaudi [0-9.]+\nmodules for UCX "
                                         "(.*, )?" GAUDI_UCX_RELEASE));
}

TEST_F(command_line, refuses_bad_values_before_it_runs_anything)
{
    for (const char *option :
         {"--emulate=0", "--emulate=65", "--emulate=-1", "--emulate=many",
          "--emulate=1.5", "--emulate=99999999999", "--emulate=",
          "--emulate=two\nlines", "--no-such-option", "", "-x", "--slot=2"}) {
        SCOPED_TRACE(option);
        EXPECT_TRUE(exited_with(2, launched({"echo", "it ran"}, {option}),
                                {"ucx-gaudi: "}, {"it ran"}));
    }
}

TEST_F(command_line, needs_no_dashes_in_front_of_the_command)
{
    for (const arguments &options :
         {arguments{}, arguments{"--slot"}, arguments{"--emulate"},
          arguments{"--emulate=2"}, arguments{"--emulate", "2"}}) {
        for (const arguments &dashes : {arguments{}, arguments{"--"}}) {
            const process_result result =
                run(joined(joined(joined({launcher, "run"}, options), dashes),
                           {"printf", "%s.", "--emulate=9", "--", "--help"}),
                    with());
            EXPECT_TRUE(exited_with(0, result));
            EXPECT_EQ("--emulate=9.--.--help.", result.output);
        }
    }
}

TEST_F(command_line, refuses_to_run_nothing)
{
    for (const arguments &command :
         {arguments{launcher, "run"}, arguments{launcher, "run", "--"},
          arguments{launcher, "run", "--emulate"},
          arguments{launcher, "run", "--emulate", "--"}}) {
        EXPECT_TRUE(
            exited_with(2, run(command, with()), {"no command is given"}));
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

TEST_F(command_line, preloads_the_stub_in_front_of_what_was_there)
{
    EXPECT_EQ(stub, seen("LD_PRELOAD", {}));
    EXPECT_EQ(stub, seen("LD_PRELOAD", {}, {{"LD_PRELOAD", ""}}));
    EXPECT_EQ(stub + ":libm.so.6",
              seen("LD_PRELOAD", {}, {{"LD_PRELOAD", "libm.so.6"}}));
}

TEST_F(command_line, switches_the_emulator_on_only_when_asked_to)
{
    EXPECT_EQ("", seen("UCX_GAUDI_DRIVER", {}));
    EXPECT_EQ("", seen("HLTHUNK_EMU_DEVICES", {}));
    EXPECT_EQ("", seen("LD_LIBRARY_PATH", {}));
    EXPECT_EQ("emulator", seen("UCX_GAUDI_DRIVER", {"--emulate"}));
    EXPECT_EQ("8", seen("HLTHUNK_EMU_DEVICES", {"--emulate"}));
    EXPECT_EQ("3", seen("HLTHUNK_EMU_DEVICES", {"--emulate=3"}));
    const environment three = {{"HLTHUNK_EMU_DEVICES", "3"}};
    EXPECT_EQ("3", seen("HLTHUNK_EMU_DEVICES", {"--emulate"}, three));
    EXPECT_EQ("5", seen("HLTHUNK_EMU_DEVICES", {"--emulate=5"}, three));
    EXPECT_EQ("64", seen("HLTHUNK_EMU_DEVICES", {"--emulate=64"}));
    EXPECT_EQ(emulator + ":/a:/b", seen("LD_LIBRARY_PATH", {"--emulate"},
                                        {{"LD_LIBRARY_PATH", "/a:/b"}}));
}

TEST_F(command_line, leaves_other_settings_alone)
{
    EXPECT_EQ("tcp,sm",
              seen("UCX_TLS", {"--emulate"}, {{"UCX_TLS", "tcp,sm"}}));
    /* Also the words that UCX cannot read, until a program has UCX. */
    EXPECT_EQ("gaudi_copy,sm",
              seen("UCX_TLS", {"--emulate"}, {{"UCX_TLS", "gaudi_copy,sm"}}));
    EXPECT_EQ("all", seen("UCX_GAUDI_DEVICES", {"--emulate"},
                          {{"UCX_GAUDI_DEVICES", "all"}}));
}

TEST_F(command_line, nested_adds_nothing_twice)
{
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
    scratch_directory files;
    const std::string link = files.path("ucx-gaudi");
    ASSERT_EQ(0, symlink(launcher, link.c_str()));
    const process_result result =
        run({"sh", "-c", "cd / && " + link + " run -- printenv LD_PRELOAD"},
            with());
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ(stub + "\n", result.output);
}

TEST_F(command_line, replaces_the_stub_of_another_installation)
{
    const std::string other =
        preloadable(std::string(GAUDI_TOOLS_DIR "/no-module/") + preloaded);
    EXPECT_EQ(stub + ":libm.so.6",
              seen("LD_PRELOAD", {}, {{"LD_PRELOAD", other + " libm.so.6"}}));
}

TEST_F(command_line, leaves_the_stub_behind_what_has_to_be_first)
{
    const std::string list = "libm.so.6:" + stub;
    EXPECT_EQ(list, seen("LD_PRELOAD", {}, {{"LD_PRELOAD", list}}));
}

TEST_F(command_line, in_a_slot_preloads_nothing)
{
    EXPECT_EQ("", seen("LD_PRELOAD", {"--slot"}));
    EXPECT_EQ(slot, seen("LD_LIBRARY_PATH", {"--slot"}));
    EXPECT_EQ(slot + ":" + emulator + ":/a:/b",
              seen("LD_LIBRARY_PATH", {"--slot", "--emulate"},
                   {{"LD_LIBRARY_PATH", "/a;/b"}}));
    EXPECT_EQ("libm.so.6",
              seen("LD_PRELOAD", {"--slot"}, {{"LD_PRELOAD", "libm.so.6"}}));
    EXPECT_EQ(stub, seen("LD_PRELOAD", {"--slot"}, {{"LD_PRELOAD", stub}}));
}

TEST_F(command_line, puts_its_directories_first_and_once)
{
    EXPECT_EQ(
        slot + ":" + emulator + ":/a::/b",
        seen("LD_LIBRARY_PATH", {"--slot", "--emulate"},
             {{"LD_LIBRARY_PATH", "/a:" + emulator + "::" + slot + ":/b"}}));
}

TEST_F(command_line, in_a_slot_names_transports_as_ucx_does)
{
    EXPECT_EQ("gaudi_cpy,sm",
              seen("UCX_TLS", {"--slot"}, {{"UCX_TLS", "gaudi_copy,sm"}}));
    EXPECT_EQ("^gaudi_cpy,gaudi_ipc",
              seen("UCX_TLS", {"--slot"}, {{"UCX_TLS", "^gaudi"}}));
    EXPECT_EQ("tcp", seen("UCX_TLS", {"--slot"}, {{"UCX_TLS", "tcp"}}));
    EXPECT_EQ("", seen("UCX_TLS", {"--slot"}));
}

TEST_F(command_line, in_a_slot_refuses_to_mix_two_ucx)
{
    scratch_directory files;
    const std::string other = files.file("libucs.so.0", "another one");
    EXPECT_TRUE(exited_with(
        1,
        launched({"echo", "it ran"}, {"--slot"},
                 {{"LD_LIBRARY_PATH", "/a:" + files.path(".")}}),
        {"LD_LIBRARY_PATH names another UCX", files.path(".")}, {"it ran"}));
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
            EXPECT_TRUE(exited_with(1, run(command, with()),
                                    {"missing", std::string(part).substr(0, 4),
                                     (part == emulator_part)
                                         ? "to mend it, install the package "
                                           "hl-thunk-emulator"
                                         : "to mend it, install ucx-gaudi"},
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
            {std::string("cannot be in ") + variable}, {"export"}));
    }
}

/* --- a UCX that is not the installed one -----------------------------------*/

class with_another_ucx : public command_line {
protected:
    [[nodiscard]] process_result launch(const std::string &version,
                                        const arguments &options,
                                        environment variables = {}) const
    {
        make_ucx(files, version, version);
        variables["LD_LIBRARY_PATH"] = files.path(version);
        variables["XDG_CACHE_HOME"]  = files.path("cache");
        return run(joined({launcher, "env"}, options), with(variables));
    }

    /* For the UCX in a folder that was made. */
    [[nodiscard]] process_result slot_for(const std::string &folder,
                                          environment variables = {}) const
    {
        variables["LD_LIBRARY_PATH"] = files.path(folder);
        return run({launcher, "env", "--slot"}, with(variables));
    }

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
                          "'\nexport OMPI_MCA_pml="));
    EXPECT_THAT(env("1.23.1", {{"UCX_PLUGIN_PATH", "/a b::" + plugin + ":/c;d"},
                               {"UCX_TLS", "gaudi_copy,sm"}})
                    .output,
                HasSubstr("export UCX_PLUGIN_PATH='" + plugin +
                          ":/a b::/c;d'\n"
                          "export UCX_TLS='gaudi_cpy,sm'\n"
                          "export OMPI_MCA_pml="));
    for (const char *version : {"1.13.1", "1.21.0"}) {
        SCOPED_TRACE(version);
        EXPECT_TRUE(exited_with(1, env(version),
                                {"cannot be in LD_PRELOAD", "move ucx-gaudi"},
                                {"export"}));
    }
}

TEST_F(with_another_ucx, a_slot_is_made_for_it)
{
    struct {
        const char *version;
        const char *link;
    } const cases[] = {{"1.20.0", "libuct_last.so.0"},
                       {"1.22.0", "libuct_hlthunk.so.0"}};
    for (const auto &[version, link] : cases) {
        SCOPED_TRACE(version);
        const process_result result = launch(version, {"--slot"});
        EXPECT_TRUE(exited_with(0, result));
        const std::string start = "export LD_LIBRARY_PATH='";
        ASSERT_TRUE(result.output.starts_with(start)) << result.output;
        const fs::path made = result.output.substr(
            start.size(), result.output.find(':') - start.size());
        EXPECT_EQ(files.path("cache/ucx-gaudi"), made.parent_path());
        for (const char *name : {"libucs.so.0", "libuct.so.0", "libucp.so.0",
                                 "ucx/libuct_ib.so.0"}) {
            EXPECT_EQ(files.path(version) + "/" + name,
                      fs::read_symlink(made / name));
        }
        EXPECT_EQ(std::string(library) + "/libuct_hlthunk.so.0",
                  fs::read_symlink(made / "ucx" / link));

        /* In it, the slot is the same, and is not made again. */
        EXPECT_EQ(start + made.string() + "'\n" + of_openmpi,
                  run({launcher, "env", "--slot"},
                      with({{"LD_LIBRARY_PATH", made.string()},
                            {"XDG_CACHE_HOME", files.path("cache")}}))
                      .output);
    }
}

TEST_F(with_another_ucx, a_slot_needs_a_ucx_that_loads_modules)
{
    make_ucx(files, "lone", "1.18.1");
    fs::remove(files.path("lone/libuct.so.0"));
    EXPECT_TRUE(exited_with(1, slot_for("lone"),
                            {"the UCX at " + files.path("lone/libucp.so.0") +
                             " loads no modules, so there is no slot in it"}));
}

TEST_F(with_another_ucx, a_slot_needs_a_place)
{
    make_ucx(files, "other", "1.20.0");
    EXPECT_TRUE(exited_with(
        1, slot_for("other", {{"XDG_CACHE_HOME", ""}, {"HOME", ""}}),
        {"there is no place for a slot"}));
    EXPECT_TRUE(exited_with(
        1, slot_for("other", {{"XDG_CACHE_HOME", files.file("file", "")}}),
        {"cannot be made: ", "set XDG_CACHE_HOME"}));
}

/* --- env -------------------------------------------------------------------*/

TEST_F(command_line, env_prints_exports_and_nothing_else)
{
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
    EXPECT_EQ("ucx rdma\n", set({{"OMPI_MCA_osc", "rdma"}}));
    /* Windows go the way of the messages, if that is chosen. */
    EXPECT_EQ("ob1\n", set({{"OMPI_MCA_pml", "ob1"}}));
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
    EXPECT_EQ("cuda", seen("OMPI_MCA_accelerator", {},
                           {{"OMPI_MCA_accelerator", "cuda"}}));
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

TEST_F(command_line, env_serves_programs)
{
    for (const char *options : {"--emulate", "--emulate --slot"}) {
        SCOPED_TRACE(options);
        const process_result result =
            script(std::string("eval \"$(env ") + options + ")\"; ucx_info -d");
        EXPECT_TRUE(is_quiet_success(result));
        EXPECT_TRUE(has_lines(1, "System device: gaudi", result));
    }
}

TEST_F(command_line, env_and_info_take_no_command)
{
    for (const char *subcommand : {"env", "info"}) {
        for (const arguments &rest :
             {arguments{"--", "echo", "it ran"}, arguments{"--"},
              arguments{"echo", "it ran"}}) {
            EXPECT_TRUE(exited_with(
                2, run(joined({launcher, subcommand}, rest), with()), {},
                {"it ran\n", "export"}));
        }
    }
}

TEST_F(command_line, says_so_when_it_cannot_write)
{
    EXPECT_TRUE(
        exited_with(1, script("env > /dev/full"), {"ucx-gaudi: cannot write"}));
}

} // namespace gaudi::test
