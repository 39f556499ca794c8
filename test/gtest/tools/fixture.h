/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Tests of installed programs under the launcher: each has a box of its own.
 */
#pragma once

#include "common/child.h"
#include "gtest/tools/process.h"

#include <gmock/gmock.h>

#include <ostream>
#include <tuple>

namespace gaudi::test {

/** A program that an unmodified UCX installation or this build has. */
inline constexpr char launcher[] = GAUDI_BUILD_DIR "/bin/ucx-gaudi";
inline constexpr char library[]  = GAUDI_BUILD_DIR "/lib";
inline constexpr char module_file[] =
    GAUDI_BUILD_DIR "/lib/ucx-gaudi/" GAUDI_UCX_RELEASE "/libuct_hlthunk.so.0";
inline constexpr char preloaded[] = "libucx_gaudi_preload.so";

/** An allocator to preload that ends programs which give memory to another one
 *  than it came from; UCX opens modules with RTLD_DEEPBIND beside it. */
inline constexpr char strict_allocator[] =
    GAUDI_TOOLS_DIR "/libstrict_allocator.so";

/** A Python script that opens a context by libucp.so.0, as Open MPI opens that:
 *  `ucp` and `context`. */
inline constexpr char python_opens_ucx[] =
    "import ctypes as c\n"
    "ucp = c.CDLL('libucp.so.0')\n"
    "config, context = c.c_void_p(), c.c_void_p()\n"
    "params = (c.c_uint64 * 64)(1, 1)\n"
    "assert ucp.ucp_config_read(None, None, c.byref(config)) == 0\n"
    "assert ucp.ucp_init_version(1, 10, params, config,"
    " c.byref(context)) == 0\n";

/** `ucx-gaudi run OPTIONS -- COMMAND`. */
arguments under_launcher(const arguments &command,
                         const arguments &options = {"--emulate"});

/** Ended by itself with an exit code, and printed each of these texts, and none
 *  of those. */
::testing::AssertionResult exited_with(int code, const process_result &result,
                                       const arguments &texts  = {},
                                       const arguments &absent = {});

/** Whether UCX prints such a line without the module, too. */
bool is_stock_complaint(const std::string &line);

/** Exit code 0, not one line that looks like a complaint of UCX, and each of
 *  these texts. */
::testing::AssertionResult is_quiet_success(const process_result &result,
                                            const arguments &texts = {});

/** So many lines with a text in what it printed. */
::testing::AssertionResult has_lines(size_t count, const std::string &text,
                                     const process_result &result);

arguments joined(arguments first, const arguments &second);

/** Those of a text, between spaces. */
arguments words(const std::string &text);

/** Variables, with UCX_PROTO_ENABLE, and UCX_TLS unless it is empty. */
environment over(const std::string &tls, const std::string &protocols,
                 environment variables = {});

/** The text with _ for what cannot be in the name of a test. */
std::string as_name(std::string text);

/** Name of a test whose parameter is a generation of protocols. */
std::string
name_of_protocols(const ::testing::TestParamInfo<const char *> &info);

/** The same of one whose parameters are a word and a generation. */
using generation = std::tuple<const char *, const char *>;
std::string
name_of_generation(const ::testing::TestParamInfo<generation> &info);

/** A name of a file that can be in LD_PRELOAD, which ends names at spaces and
 *  colons: its own where it has none, else a link that this process has. */
std::string preloadable(const std::string &file);

/** What the launcher puts into LD_PRELOAD: the loader, by its own name where
 *  that can be there. */
std::string preloaded_name();

/** A word of a command for a shell. */
std::string quoted(const std::string &word);

/** A free TCP port that no other test gets while this one runs. 0 if there is
 *  none. */
unsigned short find_free_port();

/** Whether somebody listens on a TCP port of this machine. */
bool has_listener(unsigned short port);

class tools : public ::testing::Test {
protected:
    tools();

    static constexpr std::chrono::seconds usual_deadline{40};

    /** Options of a program in this test's box. */
    [[nodiscard]] process_options
    with(const environment &variables  = {},
         std::chrono::seconds deadline = usual_deadline) const;

    /** Run under the launcher with these options. */
    [[nodiscard]] process_result
    launched(const arguments &command, const arguments &options,
             const environment &variables = {}) const
    {
        return run(under_launcher(command, options), with(variables));
    }

    /** The same with --emulate. */
    [[nodiscard]] process_result
    emulated(const arguments &command, const environment &variables = {},
             std::chrono::seconds deadline = usual_deadline) const;

private:
    std::string node_;
};

} // namespace gaudi::test
