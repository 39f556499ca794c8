/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Runs of the installed ucx_perftest under the launcher.
 */
#pragma once

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
    unsigned iterations = 10;
    std::string program = "ucx_perftest";
};

/* Tests of ucx_perftest, and kinds of memory of its two sides. */
inline constexpr const char *message_tests[] = {
    "tag_lat",    "tag_bw",    "tag_sync_lat", "tag_sync_bw",
    "stream_lat", "stream_bw", "ucp_am_lat",   "ucp_am_bw"};
inline constexpr const char *rma_tests[]    = {"ucp_put_lat", "ucp_put_bw",
                                               "ucp_get"};
inline constexpr const char *atomic_tests[] = {"ucp_add", "ucp_fadd",
                                               "ucp_swap", "ucp_cswap"};
inline constexpr const char *memory_pairs[] = {"gaudi", "gaudi,host",
                                               "host,gaudi", "host"};

/** Options: an ucx_perftest that is built with MPI takes itself for a rank of a
 *  job where it is not started from a terminal. */
arguments no_mpi_job();

/** As it would be typed. */
std::string text_of(const perftest_case &what);

class perftest : public tools {
protected:
    struct running {
        std::unique_ptr<process> server;
        std::unique_ptr<process> client;
    };

    /** With variables of one side, besides. */
    [[nodiscard]] running start_pair(const perftest_case &what,
                                     const environment &of_server = {},
                                     const environment &of_client = {}) const;

    /** Both sides end well and complain of nothing. */
    void expect_success(const perftest_case &what) const;

    /** The same, of a process with itself. */
    void expect_success_alone(perftest_case what) const;

private:
    [[nodiscard]] process_options options_of(const perftest_case &what,
                                             environment more = {}) const;
};

} // namespace gaudi::test
