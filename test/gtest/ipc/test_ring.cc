/* SPDX-License-Identifier: BSD-3-Clause */
/* What both ends of a ring make of nonsense. */
#include "uct/gaudi/ipc/ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ipc::ring_control;
using ipc::ring_max_payload;
using ipc::ring_min_size;
using ipc::ring_reader;
using ipc::ring_writer;

/* Memory of a ring, between pages that nobody may touch. */
class ring_memory {
public:
    explicit ring_memory(size_t size = ring_min_size)
        : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), size_(size),
          start_(static_cast<char *>(mmap(nullptr, size + 2 * page_, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)))
    {
        mprotect(data(), size_, PROT_READ | PROT_WRITE);
    }
    ~ring_memory() { munmap(start_, size_ + 2 * page_); }
    ring_memory(const ring_memory &)            = delete;
    ring_memory &operator=(const ring_memory &) = delete;

    [[nodiscard]] char *data() const { return start_ + page_; }
    [[nodiscard]] size_t size() const { return size_; }
    ring_control *control() { return &control_; }

private:
    size_t page_;
    size_t size_;
    char *start_;
    ring_control control_{};
};

} // namespace

TEST(ring, reader_stays_within_it_whatever_is_there)
{
    constexpr unsigned rounds = 3000;
    ring_memory memory;
    std::mt19937 random{1};
    unsigned corrupted = 0;
    unsigned messages  = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        /* Headers that are nearly right are the dangerous ones. */
        for (size_t line = 0; line < memory.size(); line += ipc::ring_line) {
            ipc::record_header header{
                static_cast<uint32_t>(random() % (2 * ring_max_payload)),
                static_cast<uint8_t>(random()),
                (random() % 4 == 0) ? ipc::record_wrap : ipc::record_message,
                0};
            if (random() % 64 == 0) {
                header = {static_cast<uint32_t>(random()),
                          static_cast<uint8_t>(random()),
                          static_cast<uint8_t>(random()), 0};
            }
            std::memcpy(memory.data() + line, &header, sizeof(header));
        }
        ring_reader victim(memory.control(), memory.data(), memory.size());
        ring_reader::message message{};
        for (unsigned i = 0; i < 1000; ++i) {
            const ring_reader::result found = victim.peek(message);
            if (found == ring_reader::result::corrupted) {
                ++corrupted;
                break;
            }
            if (found == ring_reader::result::none) {
                break;
            }
            auto *data = static_cast<char *>(message.data);
            ASSERT_GE(data, memory.data());
            ASSERT_LE(data + message.length, memory.data() + memory.size());
            ++messages;
            victim.release();
        }
    }
    EXPECT_GT(corrupted, rounds / 2);
    EXPECT_GT(messages, rounds);
}

TEST(ring, writer_does_not_believe_a_reader_that_cannot_be_so_far)
{
    for (const uint64_t claim : {uint64_t{1}, uint64_t{ring_min_size} * 2,
                                 UINT64_MAX, UINT64_MAX - ipc::ring_line + 1}) {
        ring_memory fresh;
        ring_writer victim(fresh.control(), fresh.data(), fresh.size());
        fresh.control()->consumed.store(claim);
        unsigned sent = 0;
        while (victim.reserve(100) != nullptr) {
            victim.publish(0, 100);
            ASSERT_LT(++sent, fresh.size());
        }
        EXPECT_TRUE(victim.is_corrupted());
        EXPECT_FALSE(victim.has_room());
    }
}

} // namespace gaudi::test
