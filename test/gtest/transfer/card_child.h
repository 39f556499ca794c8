/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A child of the test that has a card, and memory of it for others to use.
 */
#pragma once

#include "gtest/transfer/fixture.h"

namespace gaudi::test {

class card_child {
public:
    card_child();
    ~card_child();
    card_child(const card_child &)            = delete;
    card_child &operator=(const card_child &) = delete;

    /** Memory of its card, which goes before this object. */
    std::unique_ptr<card_memory> allocate(size_t bytes);

    /** Bytes that the engines of its card moved so far. */
    uint64_t moved_bytes();

    /** Tell it a line. @return The numbers of its answer. */
    std::vector<uint64_t> ask(const std::string &line);

    /** A descriptor of this process for what one of its is. */
    [[nodiscard]] int copy_file(int its_fd) const;

    /** Its host memory. */
    [[nodiscard]] int memory_file() const { return file_; }

private:
    child_process child_;
    int pidfd_ = -1;
    int file_  = -1;
};

} // namespace gaudi::test
