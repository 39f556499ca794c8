/**
 * What programs may leave behind in /dev/shm.
 */
#pragma once

#include <set>
#include <string>

namespace gaudi::test {

/** Looks at /dev/shm when it is made. */
class shared_memory_files {
public:
    shared_memory_files();

    /** Files that came since then, and that nobody uses; waits for those that
     *  are about to go. What is in use is of somebody else's. */
    [[nodiscard]] std::set<std::string> left_behind() const;

private:
    std::set<std::string> before_;
};

} // namespace gaudi::test
