/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/host_memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

constexpr uint64_t word_size = sizeof(uint64_t);

/* Mixed (splitmix64), so that no shift of the data looks like the data. */
uint64_t pattern_word(uint64_t seed, uint64_t index)
{
    uint64_t word = (seed << 40) + index + 0x9e3779b97f4a7c15;
    word          = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word          = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

} // namespace

void fill_pattern(void *data, size_t size, uint64_t seed, uint64_t position)
{
    char *bytes = static_cast<char *>(data);
    for (size_t done = 0; done < size;) {
        const uint64_t place = position + done;
        const uint64_t word  = pattern_word(seed, place / word_size);
        const size_t skip    = place % word_size;
        const size_t count   = std::min(word_size - skip, size - done);
        std::memcpy(bytes + done, reinterpret_cast<const char *>(&word) + skip,
                    count);
        done += count;
    }
}

::testing::AssertionResult has_pattern(const void *data, size_t size,
                                       uint64_t seed, uint64_t position)
{
    const char *bytes = static_cast<const char *>(data);
    std::vector<char> wanted(size);
    fill_pattern(wanted.data(), size, seed, position);
    if (std::equal(wanted.begin(), wanted.end(), bytes)) {
        return ::testing::AssertionSuccess();
    }
    const auto bad = std::mismatch(wanted.begin(), wanted.end(), bytes).first;
    return ::testing::AssertionFailure()
           << "pattern " << seed << " is broken at offset "
           << (bad - wanted.begin()) << " of " << size;
}

::testing::AssertionResult all_bytes_are(const void *data, size_t size,
                                         unsigned char value)
{
    const auto *bytes = static_cast<const unsigned char *>(data);
    const auto *end   = bytes + size;
    const auto *bad   = std::find_if(
          bytes, end, [value](unsigned char byte) { return byte != value; });
    if (bad == end) {
        return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure()
           << "byte " << (bad - bytes) << " of " << size << " is "
           << static_cast<unsigned>(*bad) << ", not "
           << static_cast<unsigned>(value);
}

guarded_buffer::guarded_buffer(size_t size) : size_(size)
{
    const auto page     = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t middle = (size + page - 1) / page * page;

    length_ = middle + 2 * page;
    void *base =
        mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        throw std::bad_alloc();
    }
    base_ = static_cast<char *>(base);
    if ((middle > 0) &&
        (mprotect(base_ + page, middle, PROT_READ | PROT_WRITE) != 0)) {
        munmap(base_, length_);
        throw std::bad_alloc();
    }
    data_ = base_ + page + middle - size;
}

guarded_buffer::~guarded_buffer()
{
    munmap(base_, length_);
}

} // namespace gaudi::test
