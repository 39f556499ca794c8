/**
 * What programs of a test may leave behind.
 */
#pragma once

#include <set>
#include <string>

namespace gaudi::test {

/** Shared memory: files of /dev/shm, and System V segments by their numbers. It
 *  looks when it is made. */
class shared_memory_files {
public:
    shared_memory_files();

    /** What came since then, and nobody uses; waits for what is about to go.
     *  What is in use is of somebody else's. */
    [[nodiscard]] std::set<std::string> left_behind() const;

private:
    std::set<std::string> before_;
};

/**
 * Processes, wherever they went: while one of these exists, those whose parent
 * ended become children of the test process instead of init's. Ended with this
 * object. For a test that waits for its own programs before it asks.
 */
class orphans {
public:
    orphans();
    ~orphans();
    orphans(const orphans &)            = delete;
    orphans &operator=(const orphans &) = delete;

    /** Whether none is there, or none any more. */
    [[nodiscard]] bool have_ended() const;

    /** Kill them, and what becomes an orphan by that. */
    void end() const;
};

} // namespace gaudi::test
