/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCX inside a Python wheel, whose files have other names. */
#include "common/ability.h"
#include "gtest/tools/installations.h"
#include "gtest/tools/perftest.h"
#include "gtest/tools/wheel.h"

#include <csignal>

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

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
    /** Without the launcher, by nothing but these variables. */
    [[nodiscard]] process_options alone(environment variables = {}) const
    {
        variables["UCX_GAUDI_DRIVER"] = emulator;
        return with(variables, std::chrono::seconds(90));
    }

    static std::vector<std::string> components(const process_result &result)
    {
        return lines_with(result.output, "Component: ");
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

/* Why there is nothing to see of two UCX in a process. */
std::string why_no_two_ucx(const process_result &without)
{
    return has_met_another_ucx(without)
               ? "two UCX in a process, which end it without the module, too"
               : "";
}

class wheel_of : public wheel,
                 public ::testing::WithParamInterface<wheel_names> {
protected:
    const made_wheel made{GetParam()};
    const std::string ucx_info = made.program(installed("ucx_info"));
};

using wheel_perftest = perftest;

/* Traffic. */
class wheel_contents : public wheel,
                       public ::testing::WithParamInterface<const char *> {};

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

INSTANTIATE_TEST_SUITE_P(names, wheel_of, ::testing::Values(hashed, suffixed),
                         [](const auto &test) { return test.param.text; });

TEST_P(wheel_contents, arrive_unchanged)
{
    const made_wheel made(hashed);
    const std::string peer = made.program(GAUDI_TOOLS_DIR "/ucp_peer");
    const process_options options =
        alone(over("gaudi_cpy,gaudi_ipc", default_protocols));
    const auto side = [&](const char *role) {
        return peer_command{under_launcher({peer, role, GetParam()}), options};
    };
    expect_all_sent(run_both(side("server"), side("client")));
}

INSTANTIATE_TEST_SUITE_P(of_messages, wheel_contents,
                         ::testing::Values("tag,am,stream", "rma"),
                         [](const auto &test) { return as_name(test.param); });

TEST_F(wheel_perftest, sends_device_memory)
{
    const made_wheel made(hashed);
    const std::string program = made.program(installed("ucx_perftest"));
    /* One of MPI: Open MPI has the system's UCX. */
    GAUDI_SKIP_IF(why_no_two_ucx(run({program, "-h"}, with())));
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
    GAUDI_SKIP_IF(why_no_two_ucx(run(command, with())));
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
    GAUDI_SKIP_IF(why_no_two_ucx(run(command, with())));
    EXPECT_TRUE(exited_with(0, result, {}, {"gaudi_copy"}));
    const auto lines = lines_with(result.output, "ucx-gaudi: ");
    ASSERT_EQ(1u, lines.size()) << result.output;
    EXPECT_THAT(lines[0], HasSubstr(made.library("ucs").string() +
                                    " gets no Gaudi transports"));
    EXPECT_THAT(lines[0], HasSubstr("/libucs.so.0 in this process has them"));
}

/* The module's functions are then looked up in the other one first, unless its
 * own come before all others. */
TEST_F(wheel, gets_them_by_a_link_where_all_others_see_another_ucx)
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
    const fs::path link =
        made.module(ucx_is_before(1, 22) ? "uct_rdmacm" : "uct_hlthunk");
    fs::remove(link);
    fs::create_symlink(GAUDI_BUILD_DIR "/lib/libuct_hlthunk.so.0", link);
    const process_result result = run(command, alone());
    GAUDI_SKIP_IF(why_no_two_ucx(without));
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

} // namespace gaudi::test
