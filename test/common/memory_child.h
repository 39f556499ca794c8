/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A child of the test that has host memory for others to use.
 */
#pragma once

#include "common/child.h"
#include "util/other_process.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gaudi::test {

/** Its memory is zeroed, and lives until this object goes. */
class memory_child {
public:
    static std::unique_ptr<memory_child> create(size_t bytes);
    ~memory_child();

    [[nodiscard]] const util::process_memory *host() const { return &memory_; }

    /** What is there, by another way than host(). */
    void read(void *data, size_t offset, size_t length) const;
    void write(const void *data, size_t offset, size_t length) const;

    [[nodiscard]] int pidfd() const { return pidfd_; }

    /** End the child, and wait until it has ended. */
    void kill();

    const uint64_t start; /**< in the child */
    const size_t size;    /**< bytes */

private:
    memory_child(std::unique_ptr<child_process> child, int pidfd,
                 uint64_t first, size_t bytes);

    std::unique_ptr<child_process> child_;
    const int pidfd_;
    const int file_; /* its memory */
    const util::process_memory memory_;
};

} // namespace gaudi::test
