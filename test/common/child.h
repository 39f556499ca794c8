/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Second processes for tests.
 *
 * A child is this test program again, executed afresh: settings that are read
 * once per process can differ, and what dies there does not die here. Its body
 * stands beside the test that starts it:
 *
 *     GAUDI_CHILD(takes_card_0)
 *     {
 *         GAUDI_CHILD_REQUIRE(open_card() >= 0);
 *         return 0;
 *     }
 *
 * Test and child talk in lines over pipes; every wait has a deadline. What
 * EXPECT_... finds in a child is on its stderr, and has it exit with 1.
 */
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace gaudi::test {

/** Makes a body known under a name; see GAUDI_CHILD. */
struct child_registration {
    child_registration(const char *name, int (*body)());
};

/** How a child ended. */
struct child_result {
    int exit_code  = -1;    /**< -1 when it did not exit by itself */
    int signal     = 0;     /**< that ended it */
    bool timed_out = false; /**< and was killed therefore */
    std::string error;      /**< all of its stderr */
};

void PrintTo(const child_result &result, std::ostream *out);

struct child_options {
    std::vector<std::pair<std::string, std::string>> environment;
    /** Becomes @ref child_fd of the child. */
    int inherited_fd = -1;
};

/** Number of the inherited file descriptor in a child. */
inline constexpr int child_fd = 3;

class child_process {
public:
    explicit child_process(const std::string &name,
                           const child_options &options = {});
    ~child_process();
    child_process(const child_process &)            = delete;
    child_process &operator=(const child_process &) = delete;

    /** The next line of the child's stdout; empty at its end or deadline. */
    std::string read_line();

    void write_line(const std::string &line) const;

    /** Send a signal. */
    void kill(int signal) const;

    /** Stop it, and wait until it is. SIGCONT lets it go on. */
    void stop() const;

    /** Whether it has been killed. */
    [[nodiscard]] bool is_killed() const;

    /** Wait for the end; kills at the deadline. */
    child_result wait();

    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    pid_t pid_  = -1;
    int input_  = -1;
    int output_ = -1;
    int error_  = -1; /* a file: nobody has to drain it meanwhile */
};

/** Start a child and wait for its end. */
child_result run_child(const std::string &name,
                       const child_options &options = {});

/** Whether a child exits with 0; what it wrote to stderr, if not. */
::testing::AssertionResult child_passes(const std::string &name,
                                        const child_options &options = {});

/** Lines of a text that contain another text. */
std::vector<std::string> lines_with(const std::string &text,
                                    const std::string &part);

/**
 * A child by fork() alone: a copy of the test process, with what it has open
 * and mapped. The body runs in it at once; no destructor and no exit handler
 * runs behind it.
 */
class forked_process {
public:
    explicit forked_process(const std::function<int()> &body);
    ~forked_process();
    forked_process(const forked_process &)            = delete;
    forked_process &operator=(const forked_process &) = delete;

    /** Wait for the end; kills at the deadline. What the child wrote to stderr
     *  is the test's. */
    child_result wait();

private:
    pid_t pid_;
};

/* For the bodies of children. */

/** Send a line to the test. */
void tell_parent(const std::string &line);

/** Wait for a line of the test; returns at its end, too. */
void wait_for_parent();

/* For main. */

bool is_child(int argc, char **argv);
int run_as_child(char **argv);

} // namespace gaudi::test

#define GAUDI_CHILD(_name)                                                     \
    static int _name();                                                        \
    static const gaudi::test::child_registration _name##_registration(#_name,  \
                                                                      &_name); \
    static int _name()

/* Ends the body with a failure and says where. */
#define GAUDI_CHILD_REQUIRE(_condition)                                        \
    do {                                                                       \
        if (!(_condition)) {                                                   \
            std::fprintf(stderr, "%s:%d: child: failed: %s\n", __FILE__,       \
                         __LINE__, #_condition);                               \
            return 1;                                                          \
        }                                                                      \
    } while (false)

/* The same for what EXPECT has found: for a child that its parent kills, or
 * that ends without its destructors. */
#define GAUDI_CHILD_REQUIRE_NO_FAILURE()                                       \
    GAUDI_CHILD_REQUIRE(!::testing::Test::HasFailure())
