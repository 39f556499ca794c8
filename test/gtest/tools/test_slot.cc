/* SPDX-License-Identifier: BSD-3-Clause */
/* Slot loading: UCX's own loader finds the module, and nothing is lost. */
#include "common/needs.h"
#include "gtest/tools/installations.h"
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char late_ucx[]  = GAUDI_TOOLS_DIR "/late_ucx";
constexpr char plugin[]    = GAUDI_TOOLS_DIR "/liblate_ucx_plugin.so";
constexpr char displaced[] = GAUDI_TOOLS_DIR "/displaced";
constexpr char slot_name[] = "libuct_rdmacm.so.0";

class slot : public tools {
protected:
    [[nodiscard]] process_result
    in_slot(const arguments &command, const environment &variables = {}) const
    {
        return launched(command, {"--emulate", "--slot"}, variables);
    }

    /* Both components of the module, and all others as without it. */
    void expect_components(const process_result &result) const
    {
        const process_result plain = run({late_ucx, "uct"}, with());
        EXPECT_TRUE(is_quiet_success(plain));
        EXPECT_TRUE(is_quiet_success(result));
        std::vector<std::string> expected = components(plain);
        EXPECT_THAT(expected, Contains(rdmacm).Times(has_rdmacm ? 1 : 0));
        expected.insert(expected.end(), {copies, "component gaudi_ipc"});
        EXPECT_THAT(components(result),
                    ::testing::UnorderedElementsAreArray(expected));
    }

    static std::vector<std::string> components(const process_result &result)
    {
        return lines_with(result.output, "component ");
    }

    static constexpr char copies[] = "component gaudi_copy";
    static constexpr char rdmacm[] = "component rdmacm";
    /* Not every distribution packs it. */
    const bool has_rdmacm = fs::exists(folder_of_ucx() / "ucx" / slot_name);
};

/* A UCX of one's own whose directory of modules holds nothing but a module
 * under another one's name. */
class lone_slot : public slot {
protected:
    void make(const std::string &target)
    {
        fs::create_directories(files.path("ucx"));
        fs::create_directories(files.path("empty"));
        fs::copy_file(folder_of_ucx() / "libucs.so.0",
                      files.path("libucs.so.0"));
        fs::create_symlink(target, files.path("ucx/") + slot_name);
    }

    [[nodiscard]] process_result in_it(const arguments &command,
                                       environment variables) const
    {
        variables["LD_LIBRARY_PATH"]  = files.path(".");
        variables["UCX_GAUDI_DRIVER"] = "emulator";
        return run(command, with(variables));
    }

    scratch_directory files;
    const std::string own = std::string(library) + "/libuct_hlthunk.so.0";
};

class slot_contents : public two_peers {
protected:
    void expect_all_sent(peers_case what) const
    {
        what.launcher_options = {"--emulate", "--slot"};
        two_peers::expect_all_sent(run_peers(what));
    }
};

} // namespace

TEST_F(slot, adds_its_component_and_loses_none)
{
    expect_components(in_slot({late_ucx, "uct"}));
}

TEST_F(slot, lists_the_cards_and_the_rest_as_before)
{
    GAUDI_NEEDS(second_card);
    const process_result plain = run({"ucx_info", "-d"}, with());
    const process_result result =
        in_slot({"ucx_info", "-d"}, {{"UCX_GAUDI_DEVICES", "all"}});
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_TRUE(has_lines(8, "System device: gaudi", result));
    EXPECT_EQ(lines_with(plain.output, "Component: ").size() + 2,
              lines_with(result.output, "Component: ").size());
    EXPECT_EQ(lines_with(plain.output, "onnection manager"),
              lines_with(result.output, "onnection manager"));
}

TEST_F(slot, uses_every_variable)
{
    GAUDI_NEEDS(second_card);
    for (const char *tls : {"gaudi_copy,sm", "gaudi,sm", "gaudi_cpy,sm"}) {
        EXPECT_TRUE(
            is_quiet_success(in_slot({"ucx_info", "-p", "-w", "-u", "t"},
                                     {{"UCX_GAUDI_DEVICES", "3"},
                                      {"UCX_TLS", tls},
                                      {"UCX_GAUDI_COPY_STAGING_COUNT", "4"}}),
                             {"gaudi_cpy/gaudi3"}));
    }
}

TEST_F(slot, says_nothing_of_gaudi_on_a_machine_without_a_card)
{
    const process_result result =
        launched({"ucx_info", "-p", "-w", "-u", "t"}, {"--slot"},
                 {{"UCX_GAUDI_DEVICES", "all"}});
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_THAT(result.output, Not(HasSubstr("gaudi_cpy")));
}

TEST_F(slot, by_hand_says_which_names_ucx_does_not_know)
{
    const auto look = [this](const char *tls) {
        return run(
            {"ucx_info", "-p", "-w", "-u", "t"},
            with({{"LD_LIBRARY_PATH", std::string(library) + "/ucx-gaudi/slot"},
                  {"UCX_GAUDI_DRIVER", "emulator"},
                  {"UCX_TLS", tls}}));
    };
    const process_result result = look("gaudi_copy,sm");
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_TRUE(has_lines(1, "ucx-gaudi: ", result));
    EXPECT_TRUE(has_lines(1, "UCX_TLS=gaudi_cpy,sm", result));
    EXPECT_TRUE(is_quiet_success(look("gaudi_cpy,sm")));
}

TEST_F(slot, reaches_programs_that_load_ucx_later)
{
    GAUDI_NEEDS(cards_without_framework);
    for (const arguments &command :
         {arguments{late_ucx, "global"}, arguments{late_ucx, "local"},
          arguments{late_ucx, "plugin", plugin}}) {
        SCOPED_TRACE(command.at(1));
        EXPECT_TRUE(
            is_quiet_success(in_slot(command, {{"UCX_TLS", "gaudi_copy,sm"}}),
                             {"gaudi_cpy/gaudi0"}));
    }
}

TEST_F(slot, reaches_a_ucx_that_is_opened_with_deepbind)
{
    EXPECT_TRUE(
        is_quiet_success(in_slot({late_ucx, "deep"}), {"gaudi_cpy/gaudi0"}));
}

TEST_F(slot, maps_nothing_in_programs_without_ucx)
{
    const std::string print = "print(open('/proc/self/maps').read())";
    for (const arguments &command : {arguments{"cat", "/proc/self/maps"},
                                     arguments{"python3", "-c", print}}) {
        const process_result result = in_slot(command);
        EXPECT_TRUE(is_quiet_success(result, {"libc.so"}));
        EXPECT_TRUE(exited_with(0, result, {}, {"gaudi", "libhl-thunk"}));
        EXPECT_THAT(result.output,
                    Not(::testing::ContainsRegex("libuc[mpst]\\.so")));
    }
    EXPECT_EQ("", in_slot({"/bin/true"}).output);
}

TEST_F(slot, and_preload_together_load_the_module_once)
{
    expect_components(
        emulated(under_launcher({late_ucx, "uct"}, {"--emulate", "--slot"})));

    /* Early enough for a program that has UCX from its start, too. */
    const process_result listed =
        emulated(under_launcher({"ucx_info", "-d"}, {"--slot"}));
    EXPECT_TRUE(exited_with(0, listed));
    EXPECT_TRUE(has_lines(1, "System device: gaudi", listed));
    EXPECT_TRUE(has_lines(
        1, "gaudi - ",
        emulated(under_launcher({"ucx_perftest", "-h"}, {"--slot"}))));
}

TEST_F(slot, leaves_out_what_ucx_is_told_to_leave_out)
{
    const process_result result =
        in_slot({late_ucx, "uct"}, {{"UCX_MODULES", "^rdmacm"}});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(components(result), Not(Contains(rdmacm)));
    const process_result both =
        emulated(under_launcher({late_ucx, "uct"}, {"--emulate", "--slot"}),
                 {{"UCX_MODULES", "^rdmacm"}});
    EXPECT_THAT(components(both), Not(Contains(rdmacm)));
    EXPECT_THAT(components(both), Contains(copies));
}

TEST_F(slot, works_at_a_path_with_spaces)
{
    GAUDI_NEEDS(second_card);
    const copied_installation copy("it's a path");
    const process_result result = run(
        {copy.launcher(), "run", "--emulate", "--slot", "--", "ucx_info", "-d"},
        with());
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_TRUE(has_lines(1, "System device: gaudi", result));
}

TEST_F(slot_contents, arrive_unchanged)
{
    GAUDI_NEEDS(second_card);
    for (const char *proto : protocols()) {
        expect_all_sent({"tag,am,stream", {}, over("gaudi_copy,sm", proto)});
    }
    for (const char *when : {"card-before", "card-after"}) {
        expect_all_sent({"tag,am", {when}, over("gaudi_copy,tcp", "y")});
    }
}

TEST_F(lone_slot, finds_the_displaced_module_where_ucx_is_told_to_look)
{
    make(own);
    const process_result result =
        in_it({late_ucx, "uct"}, {{"UCX_MODULE_DIR", displaced}});
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_TRUE(has_lines(1, "displaced module: loaded", result));
    EXPECT_TRUE(has_lines(1, "displaced module: initialized", result));
    EXPECT_THAT(components(result), Contains(copies));
}

TEST_F(lone_slot, takes_what_is_beside_ucx_first)
{
    const process_result result =
        in_slot({late_ucx, "uct"}, {{"UCX_MODULE_DIR", displaced}});
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_THAT(components(result), Contains(rdmacm).Times(has_rdmacm ? 1 : 0));
    EXPECT_EQ(has_rdmacm ? 0u : 1u,
              lines_with(result.output, "displaced module: loaded").size());
}

TEST_F(lone_slot, goes_on_without_the_displaced_module)
{
    make(own);
    fs::create_directories(files.path("text"));
    (void)files.file(std::string("text/") + slot_name, "no library");
    for (const char *directory :
         {"empty", "ucx", "no-such-directory", "text"}) {
        SCOPED_TRACE(directory);
        const process_result result = in_it(
            {late_ucx, "uct"}, {{"UCX_MODULE_DIR", files.path(directory)}});
        EXPECT_TRUE(exited_with(0, result));
        EXPECT_THAT(components(result), Contains(copies));
    }
}

TEST_F(lone_slot, brings_the_displaced_module_in_where_no_module_fits_too)
{
    make(GAUDI_TOOLS_DIR "/no-module/libuct_hlthunk.so.0");
    const process_result result =
        in_it({late_ucx, "uct"}, {{"UCX_MODULE_DIR", displaced}});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_TRUE(has_lines(1, "no module fits UCX", result));
    EXPECT_THAT(components(result), Not(Contains(copies)));
    EXPECT_TRUE(has_lines(1, "displaced module: initialized", result));
}

} // namespace gaudi::test
