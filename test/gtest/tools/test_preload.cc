/* SPDX-License-Identifier: BSD-3-Clause */
/* The loader brings the module to programs that use UCX, and to no others. */
#include "common/needs.h"
#include "gtest/tools/installations.h"
#include "gtest/tools/release.h"

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char late_ucx[]  = GAUDI_TOOLS_DIR "/late_ucx";
constexpr char plugin[]    = GAUDI_TOOLS_DIR "/liblate_ucx_plugin.so";
constexpr char no_module[] = GAUDI_TOOLS_DIR "/no-module/";

class preload : public tools {
protected:
    void expect_no_ucx(const process_result &result)
    {
        EXPECT_TRUE(exited_with(0, result, {"/lib/libuct_hlthunk.so"},
                                {module_file, "libhl-thunk"}));
        EXPECT_THAT(result.output,
                    Not(::testing::ContainsRegex("libuc[mpst]\\.so")));
    }

    void expect_card(const process_result &result, const arguments &texts = {})
    {
        EXPECT_TRUE(is_quiet_success(result, joined({"gaudi_copy"}, texts)));
    }
};

/* An installation that has no module for the UCX of the tests. */
class without_module : public tools {
protected:
    [[nodiscard]] process_result run_with_it(const arguments &command) const
    {
        return run(command,
                   with({{"LD_PRELOAD",
                          preloadable(std::string(no_module) + preloaded)}}));
    }

    void expect_one_line(const process_result &result)
    {
        const auto lines = lines_with(result.output, "ucx-gaudi: ");
        ASSERT_EQ(1u, lines.size()) << result.output;
        EXPECT_THAT(lines[0],
                    HasSubstr("no module fits UCX " GAUDI_UCX_VERSION));
        EXPECT_TRUE(has_lines(0, "UCX  WARN", result));
        EXPECT_TRUE(has_lines(0, "UCX  ERROR", result));
    }
};

} // namespace

TEST_F(preload, leaves_programs_without_ucx_alone)
{
    EXPECT_EQ("x\n", emulated({"sh", "-c", "echo x | cat"}).output);
    EXPECT_TRUE(exited_with(1, emulated({"/bin/false"})));
    expect_no_ucx(emulated({"cat", "/proc/self/maps"}));
    expect_no_ucx(
        emulated({"python3", "-c", "print(open('/proc/self/maps').read())"}));
}

TEST_F(preload, adds_nothing_to_what_ucx_says_about_itself)
{
    const process_result plain = run({"ucx_info", "-v"}, with());
    EXPECT_TRUE(exited_with(0, plain));
    EXPECT_EQ(plain.output, emulated({"ucx_info", "-v"}).output);
}

/* Also where a library of UCX calls what is wrapped. */
TEST_F(preload, leaves_the_wrappers_of_others_in_place)
{
    const std::string interposer =
        preloadable(GAUDI_TOOLS_DIR "/libinterposer.so");

    const auto list_with = [&](const std::string &libraries) {
        const process_result result =
            run({"ucx_info", "-p", "-u", "t"},
                with({{"UCX_GAUDI_DRIVER", "emulator"},
                      {"LD_PRELOAD", libraries}}));
        EXPECT_TRUE(exited_with(0, result));
        return result.output;
    };
    const auto calls = [](const std::string &output) {
        return lines_with(output, "interposer: called").size();
    };
    const std::string without = list_with(interposer);
    const std::string output  = list_with(preloaded_name() + ":" + interposer);
    EXPECT_LE(1u, calls(without));
    EXPECT_EQ(calls(without), calls(output));
    EXPECT_THAT(output, HasSubstr("gaudi_cpy"));
}

class settings_of_programs : public tools {
protected:
    /* Of a program that sets variables first thing in main. */
    [[nodiscard]] process_result run_setting(const arguments &variables) const
    {
        return run(
            joined({GAUDI_TOOLS_DIR "/ucp_peer", "alone", "endpoints", "set"},
                   variables),
            with({{"LD_PRELOAD", preloaded_name()}}));
    }
};

TEST_F(settings_of_programs, count_as_those_of_the_environment)
{
    const process_result result =
        run_setting({"UCX_GAUDI_DRIVER=emulator", "UCX_GAUDI_DEVICES=0,1",
                     "UCX_GAUDI_COPY_STAGING_COUNT=4"});
    EXPECT_TRUE(is_quiet_success(
        result, {"/gaudi0", "/gaudi1", "gaudi_ipc", "all well"}));
    EXPECT_THAT(result.output, Not(HasSubstr("gaudi2")));
}

TEST_F(settings_of_programs, that_are_not_valid_leave_no_card)
{
    const process_result result =
        run_setting({"UCX_GAUDI_DRIVER=emulator", "UCX_GAUDI_ENGINE=foo"});
    EXPECT_TRUE(exited_with(0, result, {"all well"}, {"gaudi_cpy"}));
    EXPECT_TRUE(has_lines(1, "UCX_GAUDI_ENGINE=foo", result));
}

TEST_F(settings_of_programs, say_what_comes_too_late)
{
    const process_result result = run_setting(
        {"UCX_GAUDI_DRIVER=emulator", "UCX_GAUDI_MEMORY_TYPE=late"});
    EXPECT_TRUE(
        exited_with(0, result, {"UCX_GAUDI_MEMORY_TYPE=late", "gaudi_copy"}));
}

TEST_F(preload, reaches_a_program_that_loads_ucx_later)
{
    GAUDI_NEEDS(cards_without_framework);
    for (const arguments &how :
         {arguments{"global"}, arguments{"local"}, arguments{"uct"},
          arguments{"plugin", plugin}}) {
        SCOPED_TRACE(how[0]);
        expect_card(emulated(joined({late_ucx}, how)));
        if (how[0] != "uct") {
            /* The program's own pointer to ucp_config_read passes the loader
             * by. */
            expect_card(emulated(joined({late_ucx}, how),
                                 {{"UCX_TLS", "gaudi_copy,sm"}}),
                        {"gaudi_cpy/gaudi0"});
        }
    }
}

/* Which calls nothing that is preloaded. */
TEST_F(preload, reaches_a_ucx_that_is_opened_with_deepbind)
{
    const environment list = {{"UCX_TLS", "gaudi_copy,sm"}};
    expect_card(emulated({late_ucx, "deep"}), {"gaudi_cpy/gaudi0"});
    expect_card(emulated({late_ucx, "deep"}, list), {"gaudi_cpy/gaudi0"});
    expect_card(emulated({late_ucx, "plugin", plugin, "deep"}),
                {"gaudi_cpy/gaudi0"});
    expect_card(emulated({late_ucx, "plugin", plugin, "deep"}, list),
                {"gaudi_cpy/gaudi0"});
    for (const char *before : {"libucs.so.0", "libuct.so.0"}) {
        expect_card(emulated({late_ucx, "deep", before}), {"gaudi_cpy/gaudi0"});
    }
}

/* Without UCX's own modules, whose libraries fail beside it. */
TEST_F(preload, reaches_a_ucx_beside_another_allocator)
{
    for (const char *how : {"global", "local"}) {
        SCOPED_TRACE(how);
        expect_card(emulated({late_ucx, how},
                             {{"UCX_TLS", "gaudi_copy,sm"},
                              {"UCX_MODULES", "hlthunk"},
                              {"LD_PRELOAD", preloadable(strict_allocator)}}),
                    {"gaudi_cpy/gaudi0"});
    }
}

TEST_F(preload, leaves_the_transport_list_of_programs_without_ucx_alone)
{
    GAUDI_NEEDS(cards_without_framework);
    const environment list = {{"UCX_TLS", "gaudi,sm"}};
    EXPECT_EQ("gaudi,sm\n", emulated({"printenv", "UCX_TLS"}, list).output);
    expect_card(emulated({"sh", "-c", quoted(late_ucx) + " local; true"}, list),
                {"gaudi_cpy/gaudi0"});
}

TEST_F(preload, of_two_installations_registers_one)
{
    const copied_installation copy;
    const process_result result =
        run({"ucx_info", "-d"},
            with({{"LD_PRELOAD", preloaded_name() + ":" + copy.path(preloaded)},
                  {"UCX_GAUDI_DRIVER", "emulator"}}));
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_TRUE(has_lines(1, "Memory domain: gaudi_copy", result));
    EXPECT_TRUE(has_lines(1, "is in use already", result));
}

/* UCX names the file that a function of libucp is in. */
TEST_F(preload, ucx_and_the_module_say_where_they_were_loaded_from)
{
    const process_result result =
        emulated({GAUDI_BUILD_DIR "/bin/ucp_host_to_device", "/etc/os-release"},
                 {{"UCX_LOG_LEVEL", "info"}});
    EXPECT_TRUE(exited_with(0, result));
    const auto lines = lines_with(result.output, "(loaded from ");
    ASSERT_EQ(2u, lines.size()) << result.output;
    EXPECT_THAT(lines[0], HasSubstr("Gaudi transports "));
    EXPECT_THAT(lines[0], HasSubstr(module_file + std::string(")")));
    EXPECT_THAT(lines[1], HasSubstr("/libucp.so.0"));
}

TEST_F(preload, reaches_python_through_ctypes)
{
    expect_card(emulated(
        {"python3", "-c",
         std::string(python_opens_ucx) + "print('" + module_file +
             "' in open('/proc/self/maps').read() and 'gaudi_copy')\n"}));
}

TEST_F(without_module, registers_nothing_in_a_ucp_program)
{
    const process_result result = run_with_it({"ucx_info", "-d"});
    EXPECT_TRUE(exited_with(0, result));
    expect_one_line(result);
    EXPECT_THAT(result.output, HasSubstr("# Memory domain: "));
    EXPECT_TRUE(has_lines(0, "Component: gaudi", result));

    const process_result variables = run_with_it({"ucx_info", "-c"});
    EXPECT_TRUE(exited_with(0, variables));
    expect_one_line(variables);
    EXPECT_TRUE(has_lines(0, "UCX_GAUDI", variables));

    const process_result help = run_with_it({"ucx_perftest", "-h"});
    expect_one_line(help);
    EXPECT_TRUE(has_lines(has_gaudi_type ? 1 : 0, "gaudi - ", help));
}

TEST_F(without_module, registers_nothing_in_a_program_that_uses_uct_alone)
{
    const process_result result = run_with_it(
        {GAUDI_BUILD_DIR "/bin/uct_host_to_device", "/etc/os-release"});
    EXPECT_TRUE(exited_with(1, result));
    expect_one_line(result);
    EXPECT_THAT(result.output, HasSubstr("No Gaudi card"));
}

TEST_F(without_module, registers_nothing_in_a_program_that_loads_ucx_later)
{
    for (const char *how : {"global", "local", "uct"}) {
        SCOPED_TRACE(how);
        const process_result result = run_with_it({late_ucx, how});
        EXPECT_TRUE(exited_with(0, result));
        expect_one_line(result);
        EXPECT_TRUE(has_lines(0, "gaudi_c", result));
    }
}

TEST_F(without_module, says_so_of_a_ucx_that_is_opened_with_deepbind)
{
    const process_result result = run_with_it({late_ucx, "deep"});
    EXPECT_TRUE(exited_with(0, result));
    expect_one_line(result);
}

TEST_F(without_module, is_silent_in_a_program_without_ucx)
{
    EXPECT_EQ("", run_with_it({"/bin/true"}).output);
}

} // namespace gaudi::test
