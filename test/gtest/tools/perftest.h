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
};

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
