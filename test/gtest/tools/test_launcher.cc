/* ucx-gaudi changes the environment and nothing else. */
#include "gtest/tools/fixture.h"

#include "gtest/tools/scratch.h"

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class command_line : public tools {
protected:
    /* The value that a launched program sees. */
    [[nodiscard]] std::string seen(const std::string &variable,
                                   const arguments &options,
                                   const environment &variables = {}) const
    {
        const process_result result = run(
            under_launcher({"printenv", variable}, options), with(variables));
        return result.output.substr(0, result.output.find('\n'));
    }

    const std::string stub     = std::string(library) + "/" + preloaded;
    const std::string emulator = std::string(library) + "/hlthunk-emu";
};

} // namespace

TEST_F(command_line, without_a_subcommand_is_an_error)
{
    const process_result result = run({launcher}, with());
    EXPECT_GT(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr("subcommand"));
}

TEST_F(command_line, explains_itself)
{
    const process_result general = run({launcher, "--help"}, with());
    EXPECT_TRUE(exited_with(0, general));
    EXPECT_THAT(general.output, HasSubstr("run"));
    const process_result about_run = run({launcher, "run", "--help"}, with());
    EXPECT_TRUE(exited_with(0, about_run));
    EXPECT_THAT(about_run.output, HasSubstr("--emulate"));
    const process_result version = run({launcher, "--version"}, with());
    EXPECT_TRUE(exited_with(0, version));
    EXPECT_EQ('0', version.output.at(0)) << version.output;
}

TEST_F(command_line, refuses_bad_values_before_it_runs_anything)
{
    for (const char *option :
         {"--emulate=0", "--emulate=65", "--emulate=-1", "--emulate=many",
          "--emulate=1.5", "--emulate=99999999999", "--no-such-option"}) {
        SCOPED_TRACE(option);
        const process_result result =
            run(under_launcher({"echo", "it ran"}, {option}), with());
        EXPECT_GT(result.exit_code, 0);
        EXPECT_THAT(result.output, Not(HasSubstr("it ran")));
        EXPECT_NE("", result.output);
    }
}

TEST_F(command_line, refuses_to_run_nothing)
{
    for (const arguments &command :
         {arguments{launcher, "run"}, arguments{launcher, "run", "--"},
          arguments{launcher, "run", "--emulate"},
          arguments{launcher, "run", "--emulate", "--"}}) {
        const process_result result = run(command, with());
        EXPECT_TRUE(exited_with(2, result));
        EXPECT_THAT(result.output, HasSubstr("no command is given"));
    }
}

TEST_F(command_line, exits_as_a_shell_does_when_the_command_cannot_run)
{
    scratch_directory files;
    const std::string plain      = files.file("plain", "text");
    const process_result missing = emulated({"no-such-command-at-all"});
    EXPECT_TRUE(exited_with(127, missing));
    EXPECT_THAT(missing.output, HasSubstr("no-such-command-at-all"));

    const process_result not_executable = emulated({plain});
    EXPECT_TRUE(exited_with(126, not_executable));
    EXPECT_THAT(not_executable.output, HasSubstr(plain));

    EXPECT_TRUE(exited_with(126, emulated({files.path(".")})));
    EXPECT_TRUE(exited_with(127, emulated({files.path("missing")})));
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

TEST_F(command_line, takes_no_command_without_the_separator)
{
    for (const arguments &command :
         {arguments{launcher, "run", "echo", "it ran"},
          arguments{launcher, "run", "--emulate", "echo", "it ran"}}) {
        const process_result result = run(command, with());
        EXPECT_GT(result.exit_code, 0);
        EXPECT_THAT(result.output, Not(HasSubstr("it ran\n")));
    }
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
    /* But for the one word that UCX cannot read, which the stub replaces. */
    EXPECT_EQ("gaudi_cpy,sm",
              seen("UCX_TLS", {"--emulate"}, {{"UCX_TLS", "gaudi_copy,sm"}}));
    EXPECT_EQ("all", seen("UCX_GAUDI_DEVICES", {"--emulate"},
                          {{"UCX_GAUDI_DEVICES", "all"}}));
}

TEST_F(command_line, nested_adds_nothing_twice)
{
    arguments command           = under_launcher({"env"});
    command                     = under_launcher(command);
    command                     = under_launcher(command, {});
    const process_result result = run(command, with());
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ(std::vector<std::string>{"LD_PRELOAD=" + stub},
              lines_with(result.output, "LD_PRELOAD="));
    EXPECT_EQ(std::vector<std::string>{"LD_LIBRARY_PATH=" + emulator},
              lines_with(result.output, "LD_LIBRARY_PATH="));

    const process_result info =
        run(under_launcher(under_launcher({"ucx_info", "-d"})), with());
    EXPECT_TRUE(is_quiet_success(info));
    EXPECT_EQ(1u, lines_with(info.output, "Device: gaudi").size());
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

TEST_F(command_line, says_what_is_missing_in_an_incomplete_installation)
{
    scratch_directory files;
    const std::string bin = files.path("bin");
    ASSERT_EQ(0, mkdir(bin.c_str(), 0700));
    std::filesystem::copy_file(launcher, bin + "/ucx-gaudi");
    const process_result result =
        run({bin + "/ucx-gaudi", "run", "--", "echo", "it ran"}, with());
    EXPECT_TRUE(exited_with(1, result));
    EXPECT_THAT(result.output, HasSubstr(preloaded));
    EXPECT_THAT(result.output, Not(HasSubstr("it ran")));
}

} // namespace gaudi::test
