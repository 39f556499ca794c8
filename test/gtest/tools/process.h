/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Programs that tests run, and what they printed.
 *
 * A program gets an environment without anybody's UCX or Gaudi settings. It
 * dies with the test process, and at its deadline, together with the programs
 * that it started.
 */
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace gaudi::test {

using arguments   = std::vector<std::string>;
using environment = std::map<std::string, std::string>;

struct process_options {
    environment variables; /**< in addition to what is inherited */
    std::string input;     /**< all of its stdin */
    int inherited_fd = -1; /**< becomes number 3 of the program */
    std::chrono::seconds deadline{40};
};

/** How a program ended. */
struct process_result {
    int exit_code  = -1;    /**< -1 when it did not exit by itself */
    int signal     = 0;     /**< that ended it */
    bool timed_out = false; /**< and was killed therefore */
    std::string output;     /**< stdout and stderr */
};

/** The driver library that is tested above the double of the kernel driver;
 *  nullptr without the double (see GAUDI_TEST_KERNEL in test/README.md). */
const char *tested_library();

class process {
public:
    explicit process(const arguments &argv,
                     const process_options &options = {});
    ~process();
    process(const process &)            = delete;
    process &operator=(const process &) = delete;

    /** Whether it has ended; it still has to be waited for. */
    [[nodiscard]] bool has_ended() const;

    /** What it has printed so far. */
    [[nodiscard]] std::string output() const;

    /** Wait for the end; kills at the deadline. */
    process_result wait();

    /** Whether its deadline has passed. */
    [[nodiscard]] bool is_late() const
    {
        return std::chrono::steady_clock::now() > deadline_;
    }

    [[nodiscard]] pid_t pid() const { return pid_; }

    /** Ask it to end, by SIGTERM, and wait. */
    process_result stop();

private:
    std::chrono::steady_clock::time_point deadline_;
    pid_t pid_  = -1;
    int pidfd_  = -1;
    int output_ = -1; /* a file: nobody has to drain it meanwhile */
};

/** Run a program to its end. */
process_result run(const arguments &argv, const process_options &options = {});

} // namespace gaudi::test
