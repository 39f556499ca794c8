/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Host memory for tests of data: contents that tell every position apart, and
 * buffers between pages that nobody may touch.
 */
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace gaudi::test {

/**
 * Write a pattern.
 *
 * @param seed      Distinguishes patterns.
 * @param position  Place of the first byte in the pattern.
 */
void fill_pattern(void *data, size_t size, uint64_t seed,
                  uint64_t position = 0);

/** Whether memory holds the pattern; names the first byte that does not. */
::testing::AssertionResult has_pattern(const void *data, size_t size,
                                       uint64_t seed, uint64_t position = 0);

/** Whether every byte has one value. */
::testing::AssertionResult all_bytes_are(const void *data, size_t size,
                                         unsigned char value);

/**
 * Zeroed memory with an inaccessible page on either side. Its last byte is the
 * last one of a page, so that an overrun of one byte is a fault.
 */
class guarded_buffer {
public:
    explicit guarded_buffer(size_t size);
    ~guarded_buffer();
    guarded_buffer(const guarded_buffer &)            = delete;
    guarded_buffer &operator=(const guarded_buffer &) = delete;

    [[nodiscard]] char *data() const { return data_; }
    [[nodiscard]] size_t size() const { return size_; }

private:
    char *base_;
    size_t length_;
    char *data_;
    size_t size_;
};

} // namespace gaudi::test
