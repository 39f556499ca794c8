/**
 * Tests of installed programs under the launcher: each has a box of its own.
 */
#pragma once

#include "common/child.h"
#include "gtest/tools/process.h"

#include <gmock/gmock.h>

#include <ostream>

namespace gaudi::test {

/** A program that an unmodified UCX installation or this build has. */
inline constexpr char launcher[] = GAUDI_BUILD_DIR "/bin/ucx-gaudi";
inline constexpr char library[]  = GAUDI_BUILD_DIR "/lib";
inline constexpr char module_file[] =
    GAUDI_BUILD_DIR "/lib/ucx-gaudi/" GAUDI_UCX_RELEASE "/libuct_hlthunk.so.0";
inline constexpr char preloaded[] = "libucx_gaudi_preload.so";

/** `ucx-gaudi run OPTIONS -- COMMAND`. */
arguments under_launcher(const arguments &command,
                         const arguments &options = {"--emulate"});

/** Ended by itself with an exit code. */
::testing::AssertionResult exited_with(int code, const process_result &result);

/** Whether UCX prints such a line without the module, too. */
bool is_stock_complaint(const std::string &line);

/** Exit code 0, and not one line that looks like a complaint of UCX. */
::testing::AssertionResult is_quiet_success(const process_result &result);

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

    /** Options of a program in this test's box. */
    [[nodiscard]] process_options with(const environment &variables = {}) const;

    /** Run under the launcher with --emulate. */
    [[nodiscard]] process_result
    emulated(const arguments &command, const environment &variables = {}) const;

private:
    std::string node_;
};

} // namespace gaudi::test
