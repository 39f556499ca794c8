/**
 * Processes that programs of a test leave behind, wherever they went.
 */
#pragma once

#include <csignal>
#include <fstream>
#include <string>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gaudi::test {

/**
 * While one exists, processes whose parent ended become children of the test
 * process instead of init's. Ended with this object. For a test that waits for
 * its own programs before it asks.
 */
class orphans {
public:
    orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
    ~orphans()
    {
        end();
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    }
    orphans(const orphans &)            = delete;
    orphans &operator=(const orphans &) = delete;

    /** Whether none is there, or none any more. */
    [[nodiscard]] bool have_ended() const
    {
        pid_t ended;
        while ((ended = waitpid(-1, nullptr, WNOHANG)) > 0) {}
        return ended < 0;
    }

    /** Kill them, and what becomes an orphan by that. */
    void end() const
    {
        while (!have_ended()) {
            const std::string self = std::to_string(getpid());
            std::ifstream children("/proc/self/task/" + self + "/children");
            for (pid_t child; children >> child;) {
                ::kill(child, SIGKILL);
            }
            waitpid(-1, nullptr, 0);
        }
    }
};

} // namespace gaudi::test
