/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What programs of a test may leave behind.
 */
#pragma once

#include <set>
#include <string>

#include <gmock/gmock.h>

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

/** A test of this class fails when a program of it leaves some. */
class no_shared_memory_left {
protected:
    ~no_shared_memory_left()
    {
        EXPECT_THAT(files_.left_behind(), ::testing::IsEmpty());
    }

private:
    const shared_memory_files files_;
};

} // namespace gaudi::test
