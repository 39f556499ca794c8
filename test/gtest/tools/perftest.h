/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Runs of the installed ucx_perftest under the launcher.
 */
#pragma once

#include "common/scratch.h"
#include "gtest/tools/fixture.h"
#include "gtest/tools/release.h"

#include <memory>

namespace gaudi::test {

/** One run between two processes, or of one with itself. */
struct perftest_case {
    std::string test;
    std::string memory;
    std::string size    = "8";
    std::string tls     = "sm"; /**< beside gaudi_copy */
    std::string proto   = default_protocols;
    arguments options   = {};
    environment more    = {};
    std::string program = "ucx_perftest";

    /** Lines of a file for its option -b, in place of the first three. */
    std::vector<std::string> batch = {};
};

/** Options: an ucx_perftest that is built with MPI takes itself for a rank of a
 *  job where it is not started from a terminal. */
arguments no_mpi_job();

class perftest : public tools {
protected:
    struct running {
        std::unique_ptr<process> server;
        std::unique_ptr<process> client;
    };

    [[nodiscard]] running start_pair(const perftest_case &what) const;

    /** Both sides end well and complain of nothing. */
    void expect_success(const perftest_case &what) const;

    /** The same, of a process with itself. */
    void expect_success_alone(perftest_case what) const;

private:
    [[nodiscard]] arguments command_of(const perftest_case &what) const;
    [[nodiscard]] process_options options_of(const perftest_case &what) const;

    scratch_directory files_;
};

} // namespace gaudi::test
