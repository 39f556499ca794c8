/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCX inside a Python wheel, whose files have other names: the loader finds
 * it, and the launcher puts the transports into it and takes them out. */
#include "gtest/tools/installations.h"
#include "gtest/tools/perftest.h"
#include "gtest/tools/wheel.h"

#include <csignal>

#include <unistd.h>

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char emulator[] = GAUDI_BUILD_DIR "/lib/hlthunk-emu/libhl-thunk.so";

/* After python_opens_ucx. */
constexpr char python_prints_context[] =
    "libc = c.CDLL(None)\n"
    "libc.fdopen.restype = c.c_void_p\n"
    "ucp.ucp_context_print_info(context, c.c_void_p(libc.fdopen(1, b'w')))\n"
    "libc.fflush(None)\n";

/* python_opens_ucx with another libucp, and arguments after its name. */
std::string opening(const fs::path &libucp, const std::string &how = "")
{
    std::string script(python_opens_ucx);
    const std::string own = "'libucp.so.0'";
    return script.replace(script.find(own), own.size(),
                          "'" + libucp.string() + "'" + how);
}

std::string installed(const std::string &program)
{
    const process_result found = run({"sh", "-c", "command -v " + program});
    return found.output.substr(0, found.output.find('\n'));
}

class wheel : public two_peers {
protected:
    static process_result put_into(const fs::path &folder)
    {
        return run({launcher, "wheel", folder});
    }
    static process_result take_out_of(const fs::path &folder)
    {
        return run({launcher, "wheel", "--remove", folder});
    }

    /** With what was put in, by nothing but these variables. */
    [[nodiscard]] process_options alone(environment variables = {}) const
    {
        variables["UCX_GAUDI_DRIVER"] = emulator;
        return with(variables, std::chrono::seconds(90));
    }

    static std::vector<std::string> components(const process_result &result)
    {
        return lines_with(result.output, "Component: ");
    }

    static void expect_line(const process_result &result,
                            const std::vector<std::string> &parts)
    {
        EXPECT_EQ(1, result.exit_code);
        const auto lines = lines_with(result.output, "");
        ASSERT_EQ(1u, lines.size()) << result.output;
        for (const std::string &part :
             joined({"ucx-gaudi: ", "to mend it, "}, parts)) {
            EXPECT_THAT(lines[0], HasSubstr(part));
        }
    }
};

/* Two UCX in a process may end it without the module: a libucs makes itself
 * global with its modules (ucs_modules_load), such as Debian 13's for fuse, and
 * the other one's constructor then calls ucs_init of that a second time. */
bool has_met_another_ucx(const process_result &result)
{
    return (result.signal == SIGABRT) &&
           !lines_with(result.output, "`!ucs_debug_initialized' failed")
                .empty();
}

/* Whether it does, and therefore with the module, too. */
bool ends_as_stock(const process_result &without, const process_result &result)
{
    const bool ends = has_met_another_ucx(without);
    EXPECT_TRUE(!ends || has_met_another_ucx(result)) << result.output;
    return ends;
}

class wheel_of : public wheel,
                 public ::testing::WithParamInterface<wheel_names> {
protected:
    const made_wheel made{GetParam()};
    const std::string ucx_info = made.program(installed("ucx_info"));
};

using wheel_perftest = perftest;

/* How they are loaded, and traffic. */
using core = std::tuple<const char *, const char *>;
class wheel_contents : public wheel,
                       public ::testing::WithParamInterface<core> {};

} // namespace

TEST_P(wheel_of, has_the_transports_preloaded)
{
    const process_result plain = run({ucx_info, "-d"}, with());
    EXPECT_TRUE(is_quiet_success(plain));
    const process_result result = emulated({ucx_info, "-d"});
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_TRUE(has_lines(1, "Component: gaudi_copy", result));
    EXPECT_TRUE(has_lines(1, "Component: gaudi_ipc", result));
    EXPECT_EQ(components(plain).size() + 2, components(result).size());
}

TEST_P(wheel_of, has_the_transports_that_were_put_in_and_loses_none)
{
    const process_result plain = run({ucx_info, "-d"}, alone());
    const process_result put   = put_into(made.folder());
    EXPECT_TRUE(exited_with(0, put, {made.modules().string() + ": "}));
    const process_result result = run({ucx_info, "-d"}, alone());
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_TRUE(has_lines(1, "Component: gaudi_copy", result));
    EXPECT_TRUE(has_lines(1, "Component: gaudi_ipc", result));
    EXPECT_EQ(components(plain).size() + 2, components(result).size());
    EXPECT_EQ(lines_with(plain.output, "onnection manager"),
              lines_with(result.output, "onnection manager"));
}

TEST_P(wheel_of, opens_the_module_whose_place_the_loader_has)
{
    if (!ucx_is_before(1, 22)) {
        ASSERT_TRUE(
            exited_with(0, put_into(made.folder()), {}, {".displaced"}));
        return; /* the loader has a place of its own */
    }
    ASSERT_TRUE(exited_with(0, put_into(made.folder())));
    const process_result result =
        run({ucx_info, "-d"}, alone({{"UCX_LOG_LEVEL", "debug"}}));
    EXPECT_TRUE(exited_with(0, result));
    const auto lines = lines_with(result.output, "which a slot displaces");
    ASSERT_EQ(1u, lines.size()) << result.output;
    EXPECT_THAT(lines[0], AllOf(HasSubstr("loaded " + made.modules().string()),
                                HasSubstr(".displaced, ")));
}

TEST_P(wheel_of, is_as_it_was_when_they_are_taken_out)
{
    const auto before = made.content();
    for (int i = 0; i < 2; ++i) { /* once more replaces them */
        EXPECT_TRUE(exited_with(0, put_into(made.folder())));
    }
    EXPECT_NE(before, made.content());
    EXPECT_TRUE(exited_with(0, take_out_of(made.folder())));
    EXPECT_EQ(before, made.content());
    expect_line(take_out_of(made.folder()), {"nothing of ucx-gaudi"});
    EXPECT_EQ(before, made.content());
}

TEST_P(wheel_of, keeps_what_a_wheel_that_was_installed_again_has)
{
    const auto before = made.content();
    ASSERT_TRUE(exited_with(0, put_into(made.folder())));
    std::map<std::string, std::string> newer;
    for (const auto &[name, content] : before) {
        if (fs::is_regular_file(name)) {
            newer[name] = content + "newer";
            std::ofstream(name, std::ios::binary) << newer[name];
        } else {
            newer[name] = content;
        }
    }
    ASSERT_TRUE(exited_with(0, put_into(made.modules())));
    ASSERT_TRUE(exited_with(0, take_out_of(made.modules())));
    EXPECT_EQ(newer, made.content());
}

INSTANTIATE_TEST_SUITE_P(names, wheel_of, ::testing::Values(hashed, suffixed),
                         [](const auto &test) { return test.param.text; });

TEST_P(wheel_contents, arrive_unchanged)
{
    const auto &[way, traffic] = GetParam();
    const made_wheel made(hashed);
    const std::string peer = made.program(GAUDI_TOOLS_DIR "/ucp_peer");
    const bool preloads    = (std::string(way) == "preloaded");
    if (!preloads) {
        ASSERT_TRUE(exited_with(0, put_into(made.folder())));
    }
    const process_options options =
        alone(over("gaudi_cpy,gaudi_ipc", default_protocols));
    const auto side = [&](const char *role) {
        const arguments command = {peer, role, traffic, "few"};
        return peer_command{preloads ? under_launcher(command) : command,
                            options};
    };
    expect_all_sent(run_both(side("server"), side("client")));
}

INSTANTIATE_TEST_SUITE_P(
    of_messages, wheel_contents,
    ::testing::Combine(::testing::Values("preloaded", "put_in"),
                       ::testing::Values("tag,am,stream", "rma")),
    [](const auto &test) {
        return as_name(std::string(std::get<0>(test.param)) + "_" +
                       std::get<1>(test.param));
    });

TEST_F(wheel_perftest, sends_device_memory)
{
    const made_wheel made(hashed);
    const std::string program = made.program(installed("ucx_perftest"));
    /* One of MPI: Open MPI has the system's UCX. */
    if (ends_as_stock(run({program, "-h"}, with()),
                      emulated({program, "-h"}))) {
        return;
    }
    expect_success({.test    = "tag_bw",
                    .memory  = "gaudi",
                    .size    = "1048576",
                    .tls     = "gaudi_ipc",
                    .program = program});
}

/* A program's own UCX stays as it is when a wheel's is the first to be used. */
TEST_F(wheel, gets_the_transports_beside_another_ucx)
{
    const made_wheel made(hashed);
    const arguments command     = {"python3", "-c",
                                   "import ctypes as c\n"
                                       "other = c.CDLL('libucp.so.0')\n" +
                                       opening(made.library("ucp")) +
                                       python_prints_context};
    const process_result result = emulated(command);
    if (ends_as_stock(run(command, with()), result)) {
        return;
    }
    EXPECT_TRUE(is_quiet_success(result, {"gaudi_copy"}));
}

TEST_F(wheel, that_is_the_second_ucx_is_told_once_that_it_gets_none)
{
    const made_wheel made(hashed);
    const std::string wheels    = opening(made.library("ucp"));
    const arguments command     = {"python3", "-c",
                                   python_opens_ucx + wheels + wheels +
                                       python_prints_context};
    const process_result result = emulated(command);
    if (ends_as_stock(run(command, with()), result)) {
        return;
    }
    EXPECT_TRUE(exited_with(0, result, {}, {"gaudi_copy"}));
    const auto lines = lines_with(result.output, "ucx-gaudi: ");
    ASSERT_EQ(1u, lines.size()) << result.output;
    EXPECT_THAT(lines[0], HasSubstr(made.library("ucp").string() +
                                    ") gets no Gaudi transports"));
    EXPECT_THAT(lines[0], HasSubstr("/libucp.so.0) of this process has them"));
}

/* The module's functions are then looked up in the other one first, unless its
 * own come before all others. */
TEST_F(wheel, gets_those_that_were_put_in_where_all_others_see_another_ucx)
{
    const made_wheel made(hashed);
    const arguments command = {
        "python3", "-c",
        "import ctypes as c, os\n"
        "other = c.CDLL('libucp.so.0', mode=c.RTLD_GLOBAL)\n" +
            opening(made.library("ucp"),
                    ", mode=os.RTLD_NOW | os.RTLD_DEEPBIND") +
            python_prints_context};
    const process_result without = run(command, alone());
    ASSERT_TRUE(exited_with(0, put_into(made.folder())));
    const process_result result = run(command, alone());
    if (ends_as_stock(without, result)) {
        return;
    }
    /* Debian 13's module for fuse complains of two when they end. */
    EXPECT_TRUE(is_quiet_success(without)
                    ? is_quiet_success(result, {"gaudi_copy"})
                    : exited_with(0, result, {"gaudi_copy"}));
}

/* Not by the names of its libraries. */
TEST_F(wheel, is_known_to_the_python_package)
{
    const made_wheel made(hashed);
    const process_result result = run(
        {"python3", "-c",
         "import ctypes\n"
         "ctypes.CDLL('" +
             made.library("ucp").string() +
             "')\n"
             "import ucx_gaudi\n"
             "ucx_gaudi.Buffer(1 << 50)\n"},
        alone({{"PYTHONPATH", GAUDI_BUILD_DIR "/lib/python3/dist-packages"}}));
    EXPECT_TRUE(
        exited_with(1, result,
                    {"RuntimeWarning: UCX was loaded before ucx_gaudi",
                     "OutOfMemoryError: ucx_gaudi_mem_alloc: Out of memory"}));
}

TEST_F(wheel, is_not_changed_where_nothing_can_be_put_in)
{
    scratch_directory files;
    expect_line(put_into(files.path("none")),
                {files.path("none"), "no folder"});
    expect_line(put_into(files.file("text", "")), {"text is no folder"});
    expect_line(put_into(files.path("")), {"there is no UCX in "});

    fs::create_directories(files.path("broken"));
    (void)files.file("broken/libucp-0a1b2c3d.so.0", "no library");
    expect_line(put_into(files.path("broken")),
                {"libucp-0a1b2c3d.so.0", "cannot be used: "});

    make_ucx(files, "new", "1.99.0");
    expect_line(put_into(files.path("new")), {"no module fits UCX 1.99.0"});
    make_ucx(files, "old", "1.12.1");
    expect_line(put_into(files.path("old")), {"UCX 1.12.1", "too old"});
}

TEST_F(wheel, changes_all_or_none)
{
    const made_wheel made(hashed);
    fs::create_directories(made.folder() / "broken.libs");
    std::ofstream(made.folder() / "broken.libs/libucp.so.0") << "no library";
    const auto before = made.content();
    expect_line(put_into(made.folder()), {"broken.libs"});
    EXPECT_EQ(before, made.content());
}

TEST_F(wheel, that_cannot_be_written_is_left_alone)
{
    const made_wheel made(hashed);
    const auto before = made.content();
    const auto rights = [&](fs::perms value) {
        fs::permissions(made.modules(), value);
    };
    rights(fs::perms::owner_read | fs::perms::owner_exec);
    arguments command = {launcher, "wheel", made.folder()};
    if (geteuid() == 0) { /* who may write anywhere */
        command = joined({"setpriv", "--bounding-set=-dac_override"}, command);
    }
    expect_line(run(command), {made.modules().string() + " cannot be written"});
    EXPECT_EQ(before, made.content());
    rights(fs::perms::owner_all);

    ASSERT_TRUE(exited_with(0, put_into(made.folder())));
    const auto with_them = made.content();
    rights(fs::perms::owner_read | fs::perms::owner_exec);
    command.insert(command.end() - 1, "--remove");
    expect_line(run(command), {made.modules().string() + " cannot be written"});
    EXPECT_EQ(with_them, made.content());
    rights(fs::perms::owner_all);
}

} // namespace gaudi::test
