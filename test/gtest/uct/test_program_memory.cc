/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory without a UCP context: allocating, copying, filling, freeing.
 */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <array>
#include <thread>

namespace gaudi::test {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ucs_status_t copy(void *dst, const void *src, size_t length)
{
    return GAUDI_CALL(ucx_gaudi_mem_copy)(dst, src, length);
}

ucs_status_t fill(void *address, size_t length, const std::string &pattern)
{
    return GAUDI_CALL(ucx_gaudi_mem_fill)(address, length, pattern.data(),
                                          pattern.size());
}

void *allocate(size_t length)
{
    void *address = nullptr;
    EXPECT_EQ(UCS_OK,
              GAUDI_CALL(ucx_gaudi_mem_alloc)(length, nullptr, &address));
    return address;
}

ucs_status_t release(void *address)
{
    return GAUDI_CALL(ucx_gaudi_mem_free)(address);
}

/* No memory domain is open, unless a test opens one. */
class program_memory : public ::testing::Test {
protected:
    /* Device memory until the end of the scope. */
    struct buffer {
        explicit buffer(size_t length) : address(allocate(length)) {}
        ~buffer() { EXPECT_EQ(UCS_OK, release(address)); }
        buffer(const buffer &)            = delete;
        buffer &operator=(const buffer &) = delete;

        [[nodiscard]] char *at(size_t offset) const
        {
            return static_cast<char *>(address) + offset;
        }

        [[nodiscard]] std::vector<char> contents(size_t length) const
        {
            std::vector<char> bytes(length);
            EXPECT_EQ(UCS_OK, copy(bytes.data(), address, length));
            return bytes;
        }

        void *const address;
    };

    ~program_memory() override
    {
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_close)());
    }

    checked_log log;

    /* A call is refused, and one line of the log says why. */
    static void expect_refusal(ucs_status_t wanted, ucs_status_t status,
                               const std::string &why,
                               int line = __builtin_LINE())
    {
        SCOPED_TRACE("line " + std::to_string(line));
        EXPECT_EQ(wanted, status);
        EXPECT_THAT(take_logs(), ElementsAre(HasSubstr(why)));
    }
    static void expect_invalid_address(ucs_status_t status,
                                       const std::string &why,
                                       int line = __builtin_LINE())
    {
        expect_refusal(UCS_ERR_INVALID_ADDR, status, why, line);
    }
    static void expect_invalid(ucs_status_t status, const std::string &why,
                               int line = __builtin_LINE())
    {
        expect_refusal(UCS_ERR_INVALID_PARAM, status, why, line);
    }
};

constexpr size_t size = (5 << 20) + 3; /* chunks, pieces, and a rest */

} // namespace

TEST_F(program_memory, has_what_was_copied_there)
{
    const buffer device(size + 100);
    for (const size_t length : {size_t{1}, size_t{2049}, size_t{65537}, size}) {
        const guarded_buffer source(length);
        const guarded_buffer target(length);
        fill_pattern(source.data(), length, length);
        ASSERT_EQ(UCS_OK, copy(device.at(77), source.data(), length));
        ASSERT_EQ(UCS_OK, copy(target.data(), device.at(77), length));
        EXPECT_TRUE(has_pattern(target.data(), length, length));
    }
}

TEST_F(program_memory, copies_between_host_memory_without_a_card)
{
    const std::string text = "of the host";
    std::string seen(text.size(), ' ');
    EXPECT_EQ(UCS_OK, copy(seen.data(), text.data(), text.size()));
    EXPECT_EQ(text, seen);
    EXPECT_EQ(UCS_OK, fill(seen.data(), 10, "ab"));
    EXPECT_EQ("abababababt", seen);
}

TEST_F(program_memory, is_filled_with_patterns_of_all_lengths)
{
    const std::string all = "0123456789abcdef";
    const buffer device(400000);
    for (const size_t bytes : {1, 2, 4, 8, 16}) {
        const std::string pattern = all.substr(0, bytes);
        for (const size_t length :
             {bytes, 3 * bytes, size_t{65536}, size_t{65536} + bytes,
              size_t{300000} / bytes * bytes}) {
            ASSERT_EQ(UCS_OK, fill(device.address, 400000, "-"));
            ASSERT_EQ(UCS_OK, fill(device.at(13), length, pattern));
            const std::vector<char> seen = device.contents(400000);
            EXPECT_TRUE(all_bytes_are(seen.data(), 13, '-'));
            for (size_t at = 0; at < length; ++at) {
                ASSERT_EQ(pattern[at % bytes], seen[13 + at])
                    << bytes << " bytes, " << length << ", at " << at;
            }
            EXPECT_TRUE(all_bytes_are(seen.data() + 13 + length,
                                      400000 - 13 - length, '-'));
        }
    }
}

TEST_F(program_memory, is_filled_with_patterns_of_powers_of_two_alone)
{
    const buffer device(100);
    for (const char *pattern :
         {"", "abc", "0123456789abcdef0123456789abcdef"}) {
        expect_invalid(fill(device.address, 96, pattern),
                       "1, 2, 4, 8 or 16, and divide theirs");
    }
    expect_invalid(fill(device.address, 99, "ab"),
                   "cannot fill 99 bytes with a pattern of 2");
    expect_invalid(
        GAUDI_CALL(ucx_gaudi_mem_fill)(device.address, 1, nullptr, 1),
        "a pointer is NULL");
    expect_invalid(
        GAUDI_CALL(ucx_gaudi_mem_fill)(device.address, 16, device.at(50), 16),
        "it is in device memory");
}

TEST_F(program_memory, is_not_touched_behind_its_end)
{
    GAUDI_NEEDS(own_pool);
    constexpr size_t half = 100000; /* more than is copied before a doubling */
    const buffer device(2 * half);
    std::vector<char> host(3 * half, 'x');
    ASSERT_EQ(UCS_OK, fill(device.address, 2 * half, "."));
    expect_invalid_address(copy(device.at(half), host.data(), half + 1),
                           "are in no allocation of device memory");
    expect_invalid_address(copy(host.data(), device.address, 2 * half + 1),
                           "are in no allocation of device memory");
    expect_invalid_address(fill(device.at(half), half + 1, "x"),
                           "are in no allocation of device memory");
    EXPECT_TRUE(all_bytes_are(device.contents(2 * half).data(), 2 * half, '.'));
    EXPECT_TRUE(all_bytes_are(host.data(), 3 * half, 'x'));
}

TEST_F(program_memory, is_no_range_that_wraps_around)
{
    const buffer device(100);
    char host = 0;
    expect_invalid_address(copy(device.address, &host, SIZE_MAX),
                           "are no range of memory");
    expect_invalid_address(copy(&host, device.address, SIZE_MAX),
                           "are no range of memory");
    expect_invalid_address(fill(device.address, SIZE_MAX, "x"),
                           "are no range of memory");
}

TEST_F(program_memory, is_not_copied_where_the_ranges_overlap)
{
    const buffer device(1000);
    expect_invalid(copy(device.at(1), device.at(0), 100), "they overlap");
    expect_invalid(copy(device.at(0), device.at(99), 100), "they overlap");
    EXPECT_EQ(UCS_OK, copy(device.at(0), device.at(100), 100));
    EXPECT_EQ(UCS_OK, copy(device.at(0), device.at(0), 100));
}

TEST_F(program_memory, is_left_alone_by_calls_for_no_bytes)
{
    char host = 'x';
    EXPECT_EQ(UCS_OK, copy(&host, nullptr, 0));
    EXPECT_EQ(UCS_OK, copy(nullptr, &host, 0));
    EXPECT_EQ(UCS_OK, fill(nullptr, 0, "x"));
    EXPECT_EQ(UCS_OK, release(nullptr));
    void *address = &host;
    expect_invalid(GAUDI_CALL(ucx_gaudi_mem_alloc)(0, nullptr, &address),
                   "cannot allocate 0 bytes");
    EXPECT_EQ(&host, address);
    expect_invalid(GAUDI_CALL(ucx_gaudi_mem_alloc)(1, nullptr, nullptr),
                   "a pointer is NULL");
    EXPECT_EQ('x', host);
}

TEST_F(program_memory, ends_before_the_card_is_given_more_than_it_has)
{
    const buffer device(100);
    for (const size_t length : {size_t{1} << 62, SIZE_MAX - 1, SIZE_MAX}) {
        void *address = nullptr;
        expect_refusal(
            UCS_ERR_NO_MEMORY,
            GAUDI_CALL(ucx_gaudi_mem_alloc)(length, nullptr, &address),
            "cannot allocate ");
        EXPECT_EQ(nullptr, address);
    }
    EXPECT_EQ(UCS_OK, fill(device.address, 100, "x"));
}

TEST_F(program_memory, is_freed_once_by_its_address)
{
    void *const address = allocate(5000);
    expect_invalid_address(release(static_cast<char *>(address) + 1),
                           "cannot be freed");
    EXPECT_EQ(UCS_OK, release(address));
    expect_invalid_address(release(address), "cannot be freed");
}

TEST_F(program_memory, of_ucx_is_copied_and_filled_but_not_freed)
{
    const opened_domain md;
    {
        const device_buffer device(md, 5000);
        char seen = 0;
        EXPECT_EQ(UCS_OK, fill(device.address, 5000, "u"));
        EXPECT_EQ(UCS_OK, copy(&seen, device.data() + 4999, 1));
        EXPECT_EQ('u', seen);
        expect_invalid_address(release(device.address), "cannot be freed");
    }
}

TEST_F(program_memory, is_known_to_ucx_that_is_opened_later)
{
    const buffer device(size);
    ASSERT_EQ(UCS_OK, fill(device.address, size, "a"));
    {
        const opened_domain md;
        ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
        EXPECT_EQ(UCS_OK,
                  uct_md_detect_memory_type(md, device.address, size, &type));
        EXPECT_EQ(GAUDI_CALL(ucx_gaudi_memory_type)(), type);
        transport tl(md);
        std::vector<char> host(size);
        tl.read_device(host.data(), reinterpret_cast<uintptr_t>(device.address),
                       size);
        EXPECT_TRUE(all_bytes_are(host.data(), size, 'a'));
    }
    EXPECT_EQ(UCS_OK, fill(device.address, size, "b"));
    EXPECT_TRUE(all_bytes_are(device.contents(size).data(), size, 'b'));
}

/* More than there are engines. */
TEST_F(program_memory, is_used_by_many_threads_at_a_time)
{
    constexpr unsigned threads = 12;
    constexpr size_t length    = 150001;
    std::array<bool, threads> fine{};
    const auto work = [&](unsigned number) {
        bool good = true;
        for (unsigned round = 0; good && (round < 10); ++round) {
            const unsigned seed = number * 100 + round;
            std::vector<char> host(length);
            std::vector<char> seen(length);
            void *address = nullptr;
            fill_pattern(host.data(), length, seed);
            good = (GAUDI_CALL(ucx_gaudi_mem_alloc)(2 * length, nullptr,
                                                    &address) == UCS_OK);
            char *const middle = static_cast<char *>(address) + length;
            good = good && (fill(address, 2 * length, "-") == UCS_OK) &&
                   (copy(address, host.data(), length) == UCS_OK) &&
                   (copy(middle, address, length) == UCS_OK) &&
                   (copy(seen.data(), middle, length) == UCS_OK) &&
                   (seen == host) && (release(address) == UCS_OK);
        }
        fine[number] = good;
    };
    std::vector<std::jthread> all;
    for (unsigned i = 0; i < threads; ++i) {
        all.emplace_back(work, i);
    }
    all.clear(); /* when they have ended */
    EXPECT_THAT(fine, ::testing::Each(true));
}

TEST_F(program_memory, leaves_nothing_on_the_card_or_in_the_process)
{
    { /* what is made once */
        const buffer first(1);
        ASSERT_EQ(UCS_OK, fill(first.address, 1, "x"));
    }
    const auto before  = engine_hooks::counters();
    const unsigned fds = count_open_fds();
    for (unsigned i = 0; i < 20; ++i) {
        const buffer device(size);
        ASSERT_EQ(UCS_OK, fill(device.address, size - 3, "0123"));
    }
    EXPECT_EQ(before.allocations, engine_hooks::counters().allocations);
    EXPECT_EQ(before.mappings, engine_hooks::counters().mappings);
    EXPECT_EQ(fds, count_open_fds());
}

} // namespace gaudi::test
