/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of ucx_gaudi.h that get on while the program does something else:
 * streams, events, and host memory that the card reaches. */
#include "gtest/uct/fixture.h"

#include <atomic>
#include <thread>

namespace gaudi::test {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t size = (3 << 20) + 5; /* pieces, chunks, and a rest */

ucs_status_t copy(void *dst, const void *src, size_t length)
{
    return GAUDI_CALL(ucx_gaudi_mem_copy)(dst, src, length);
}

/* A stream until the end of the scope, in which everything then went well. */
struct stream {
    stream()
    {
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_stream_create)(&handle));
    }
    ~stream()
    {
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_stream_destroy)(handle));
    }
    stream(const stream &)            = delete;
    stream &operator=(const stream &) = delete;

    ucs_status_t copy(void *dst, const void *src, size_t length) const
    {
        return GAUDI_CALL(ucx_gaudi_mem_copy_async)(dst, src, length, handle);
    }
    [[nodiscard]] ucs_status_t finish() const
    {
        return GAUDI_CALL(ucx_gaudi_stream_synchronize)(handle);
    }
    [[nodiscard]] ucs_status_t query() const
    {
        return GAUDI_CALL(ucx_gaudi_stream_query)(handle);
    }

    ucx_gaudi_stream_h handle = nullptr;
};

struct event {
    event() { EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_event_create)(&handle)); }
    ~event() { EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_event_destroy)(handle)); }
    event(const event &)            = delete;
    event &operator=(const event &) = delete;

    void record(const stream &in) const
    {
        EXPECT_EQ(UCS_OK,
                  GAUDI_CALL(ucx_gaudi_event_record)(handle, in.handle));
    }
    void hold_up(const stream &what) const
    {
        EXPECT_EQ(UCS_OK,
                  GAUDI_CALL(ucx_gaudi_stream_wait_event)(what.handle, handle));
    }
    [[nodiscard]] ucs_status_t query() const
    {
        return GAUDI_CALL(ucx_gaudi_event_query)(handle);
    }
    [[nodiscard]] ucs_status_t wait() const
    {
        return GAUDI_CALL(ucx_gaudi_event_synchronize)(handle);
    }

    ucx_gaudi_event_h handle = nullptr;
};

struct device_bytes_of {
    explicit device_bytes_of(size_t length)
    {
        EXPECT_EQ(UCS_OK,
                  GAUDI_CALL(ucx_gaudi_mem_alloc)(length, nullptr, &address));
    }
    ~device_bytes_of()
    {
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_mem_free)(address));
    }
    device_bytes_of(const device_bytes_of &)            = delete;
    device_bytes_of &operator=(const device_bytes_of &) = delete;

    [[nodiscard]] char *at(size_t offset) const
    {
        return static_cast<char *>(address) + offset;
    }

    void *address = nullptr;
};

/* Host memory that cards reach, until the end of the scope. */
struct registered {
    explicit registered(size_t length) : bytes(length)
    {
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_host_register)(data(), length));
    }
    ~registered()
    {
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_host_unregister)(data()));
    }
    registered(const registered &)            = delete;
    registered &operator=(const registered &) = delete;

    char *data() { return bytes.data(); }

    std::vector<char> bytes;
};

/* While one lives, cards take jobs and make none. */
struct paused_cards {
    paused_cards() { engine_hooks::pause(true); }
    ~paused_cards() { engine_hooks::pause(false); }
    paused_cards(const paused_cards &)            = delete;
    paused_cards &operator=(const paused_cards &) = delete;
};

class program_streams : public ::testing::Test {
protected:
    ~program_streams() override
    {
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_close)());
    }

    checked_log log;

    static void expect_log(const std::string &text, int line = __builtin_LINE())
    {
        SCOPED_TRACE("line " + std::to_string(line));
        EXPECT_THAT(take_logs(), ElementsAre(HasSubstr(text)));
    }
};

} // namespace

TEST_F(program_streams, make_their_copies_in_the_order_they_got_them)
{
    const device_bytes_of device(2 * size);
    const stream work;
    for (unsigned round = 0; round < 5; ++round) {
        std::vector<char> source(size);
        std::vector<char> seen(size);
        fill_pattern(source.data(), size, round);
        EXPECT_EQ(UCS_OK, work.copy(device.at(0), source.data(), size));
        EXPECT_EQ(UCS_OK, work.copy(device.at(size), device.at(0), size));
        EXPECT_EQ(UCS_OK, work.copy(seen.data(), device.at(size), size));
        ASSERT_EQ(UCS_OK, work.finish());
        EXPECT_TRUE(has_pattern(seen.data(), size, round));
        EXPECT_EQ(UCS_OK, work.query());
    }
}

TEST_F(program_streams, return_while_the_card_is_at_it)
{
    const device_bytes_of device(size);
    registered source(size);
    registered seen(size);
    const stream work;
    const event behind;
    fill_pattern(source.data(), size, 1);
    {
        const paused_cards paused;
        EXPECT_EQ(UCS_OK, work.copy(device.at(0), source.data(), size));
        EXPECT_EQ(UCS_OK, work.copy(seen.data(), device.at(0), size));
        behind.record(work);
        EXPECT_EQ(UCS_INPROGRESS, work.query());
        EXPECT_EQ(UCS_INPROGRESS, behind.query());
    }
    EXPECT_EQ(UCS_OK, behind.wait());
    EXPECT_EQ(UCS_OK, behind.query());
    EXPECT_EQ(source.bytes, seen.bytes);
}

TEST_F(program_streams, have_copied_other_host_memory_when_they_return)
{
    const device_bytes_of device(size);
    const stream work;
    std::vector<char> source(size, 'o');
    std::vector<char> seen(size);
    EXPECT_EQ(UCS_OK, work.copy(device.at(0), source.data(), size));
    source.assign(size, 'n');
    EXPECT_EQ(UCS_OK, work.copy(seen.data(), device.at(0), size));
    EXPECT_EQ(std::vector<char>(size, 'o'), seen);
    EXPECT_EQ(UCS_OK, work.query());
}

/* Longer than what a card takes at a time by default: nobody calls anything
 * until the bytes are there. */
TEST_F(program_streams, get_on_by_themselves)
{
    GAUDI_NEEDS(mapped_host); /* else the CPU takes part */
    constexpr size_t length = 32 << 20;
    const device_bytes_of device(length);
    registered source(length);
    const stream work;
    const uint64_t before = engine_hooks::counters().host_to_device_bytes;
    EXPECT_EQ(UCS_OK, work.copy(device.at(0), source.data(), length));
    while (engine_hooks::counters().host_to_device_bytes < before + length) {
        std::this_thread::yield();
    }
    EXPECT_EQ(UCS_OK, work.finish());
}

TEST_F(program_streams, have_copies_that_do_not_depend_made_together)
{
    constexpr size_t block = 4096;
    constexpr size_t count = 100; /* more than are under way at a time */
    const device_bytes_of device(2 * count * block);
    registered source(count * block);
    registered seen(count * block);
    const stream work;
    fill_pattern(source.data(), count * block, 7);
    {
        const paused_cards paused;
        for (size_t at = 0; at < count * block; at += block) {
            EXPECT_EQ(UCS_OK,
                      work.copy(device.at(at), source.data() + at, block));
        }
        /* What the next one reads, the last ones write. */
        EXPECT_EQ(UCS_OK, work.copy(device.at(count * block), device.at(0),
                                    count * block));
        EXPECT_EQ(UCS_OK, work.copy(seen.data(), device.at(count * block),
                                    count * block));
        EXPECT_EQ(UCS_INPROGRESS, work.query());
    }
    EXPECT_EQ(UCS_OK, work.finish());
    EXPECT_EQ(source.bytes, seen.bytes);
}

TEST_F(program_streams, wait_for_events_of_others)
{
    const device_bytes_of device(2 * size);
    registered source(size);
    const stream first;
    const stream second;
    const event never;
    const event between;
    std::vector<char> seen(size);
    fill_pattern(source.data(), size, 3);
    never.hold_up(second);
    EXPECT_EQ(UCS_OK, second.finish());
    EXPECT_EQ(UCS_OK, never.query());
    EXPECT_EQ(UCS_OK, never.wait());
    {
        const paused_cards paused;
        EXPECT_EQ(UCS_OK, first.copy(device.at(0), source.data(), size));
        between.record(first);
        between.hold_up(second);
        EXPECT_EQ(UCS_OK, second.copy(device.at(size), device.at(0), size));
        EXPECT_EQ(UCS_INPROGRESS, second.query());
    }
    /* Nobody asks the first one. */
    EXPECT_EQ(UCS_OK, second.finish());
    EXPECT_EQ(UCS_OK, first.query());
    EXPECT_EQ(UCS_OK, copy(seen.data(), device.at(size), size));
    EXPECT_EQ(source.bytes, seen);
}

TEST_F(program_streams,
       wait_for_the_place_that_an_event_had_when_they_were_told)
{
    const device_bytes_of device(size);
    registered source(size);
    std::vector<char> seen(1);
    const stream slow;
    const stream quick;
    const event place;
    source.bytes[0] = 'q';
    place.record(slow);
    place.hold_up(quick);
    const paused_cards paused;
    EXPECT_EQ(UCS_OK, slow.copy(device.at(0), source.data(), size));
    place.record(slow);
    EXPECT_EQ(UCS_OK, quick.copy(seen.data(), source.data(), 1));
    EXPECT_EQ(UCS_OK, quick.finish());
    EXPECT_EQ(UCS_INPROGRESS, place.query());
    EXPECT_EQ('q', seen[0]);
}

TEST_F(program_streams, leave_out_what_follows_a_failure_and_tell_it_once)
{
    const device_bytes_of device(100);
    const stream work;
    const stream other;
    const event before;
    const event behind;
    const std::string source(100, 'x');
    std::string seen(100, '-');
    std::string of_other(100, '-');
    before.record(work);
    /* Not in an allocation as a whole, which only the copy finds out. */
    EXPECT_EQ(UCS_OK, work.copy(device.at(0), source.data(), 100));
    EXPECT_EQ(UCS_OK, work.copy(seen.data(), device.at(size_t{1} << 40), 100));
    EXPECT_EQ(UCS_OK, work.copy(seen.data(), source.data(), 100));
    behind.record(work);
    behind.hold_up(other);
    EXPECT_EQ(UCS_OK, other.copy(of_other.data(), source.data(), 100));
    EXPECT_EQ(UCS_OK, before.wait());
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, behind.wait());
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, work.query());
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, work.finish());
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, other.finish());
    expect_log("100 bytes at");
    EXPECT_EQ(std::string(100, '-'), seen);
    EXPECT_EQ(std::string(100, '-'), of_other);

    EXPECT_EQ(UCS_OK, work.finish());
    EXPECT_EQ(UCS_OK, work.copy(seen.data(), device.at(0), 100));
    EXPECT_EQ(UCS_OK, work.finish());
    EXPECT_EQ(source, seen);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, behind.query()); /* as it was recorded */
}

TEST_F(program_streams, refuse_at_once_what_cannot_be_a_copy)
{
    const device_bytes_of device(100);
    const stream work;
    const event some;
    char host[100];
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, work.copy(nullptr, host, 1));
    expect_log("ucx_gaudi_mem_copy_async: a pointer is NULL");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, work.copy(device.at(0), device.at(1), 9));
    expect_log("they overlap");
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, work.copy(device.at(0), host, SIZE_MAX));
    expect_log("are no range of memory");
    EXPECT_EQ(UCS_OK, work.copy(nullptr, nullptr, 0));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, GAUDI_CALL(ucx_gaudi_mem_copy_async)(
                                         host, device.at(0), 1, nullptr));
    expect_log("ucx_gaudi_mem_copy_async: a pointer is NULL");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_event_record)(some.handle, nullptr));
    expect_log("ucx_gaudi_event_record: a pointer is NULL");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_stream_wait_event)(work.handle, nullptr));
    expect_log("ucx_gaudi_stream_wait_event: a pointer is NULL");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_stream_create)(nullptr));
    expect_log("ucx_gaudi_stream_create: a pointer is NULL");
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_stream_destroy)(nullptr));
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_event_destroy)(nullptr));
    EXPECT_EQ(UCS_OK, work.finish());
}

TEST_F(program_streams, do_all_they_have_before_they_are_destroyed)
{
    const device_bytes_of device(size);
    const std::vector<char> source(size, 'e');
    std::vector<char> seen(size);
    const event last;
    {
        const stream work;
        EXPECT_EQ(UCS_OK, work.copy(device.at(0), source.data(), size));
        EXPECT_EQ(UCS_OK, work.copy(seen.data(), device.at(0), size));
        last.record(work);
    }
    EXPECT_EQ(UCS_OK, last.query());
    EXPECT_EQ(source, seen);
}

TEST_F(program_streams, keep_the_cards_open)
{
    const stream work;
    EXPECT_EQ(UCS_ERR_BUSY, GAUDI_CALL(ucx_gaudi_close)());
    expect_log("1 streams");
}

TEST_F(program_streams, of_a_parent_are_refused_in_its_child)
{
    const stream work;
    const event some;
    some.record(work);
    EXPECT_EQ(UCS_OK, work.finish());
    EXPECT_TRUE(passes_forked([&] {
        char byte        = 0;
        const char other = 1;
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, work.finish());
        expect_log("forked from");
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, copy(&byte, &other, 1));
        EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                  GAUDI_CALL(ucx_gaudi_mem_fill)(&byte, 1, &other, 1));
        EXPECT_EQ(0, byte);
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, work.query());
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, work.copy(&byte, &byte, 1));
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, some.wait());
        EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                  GAUDI_CALL(ucx_gaudi_stream_destroy)(work.handle));
        ucx_gaudi_stream_h own;
        EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                  GAUDI_CALL(ucx_gaudi_stream_create)(&own));
    }));
}

TEST_F(program_streams, are_used_by_many_threads_at_a_time)
{
    constexpr unsigned threads = 4;
    constexpr unsigned rounds  = 50;
    constexpr size_t length    = 5000;
    const device_bytes_of device(threads * length);
    const stream shared;
    const event place;
    std::atomic<unsigned> wrong{0};
    const auto use = [&](unsigned number) {
        const stream own;
        char *const part = device.at(number * length);
        for (unsigned round = 0; round < rounds; ++round) {
            std::vector<char> source(length);
            std::vector<char> seen(length);
            fill_pattern(source.data(), length, number * rounds + round);
            wrong += (shared.copy(part, source.data(), length) != UCS_OK);
            place.record(shared);
            place.hold_up(own);
            wrong += (own.copy(seen.data(), part, length) != UCS_OK);
            wrong += (own.finish() != UCS_OK) || (seen != source);
            wrong += (place.wait() != UCS_OK);
        }
    };
    {
        std::vector<std::jthread> all;
        for (unsigned i = 0; i < threads; ++i) {
            all.emplace_back(use, i);
        }
    }
    EXPECT_EQ(0u, wrong);
}

TEST_F(program_streams, register_host_memory_and_nothing_else)
{
    const device_bytes_of device(100);
    char host[100];
    for (unsigned round = 0; round < 2; ++round) {
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_host_register)(host, 100));
        EXPECT_EQ(UCS_ERR_ALREADY_EXISTS,
                  GAUDI_CALL(ucx_gaudi_host_register)(host, 100));
        expect_log("is registered already");
        EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_host_unregister)(host));
        EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                  GAUDI_CALL(ucx_gaudi_host_unregister)(host));
        expect_log("no host memory is registered at");
    }
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_host_unregister)(nullptr));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              GAUDI_CALL(ucx_gaudi_host_register)(device.address, 100));
    expect_log("they are no host memory");
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              GAUDI_CALL(ucx_gaudi_host_register)(host, 0));
    expect_log("they are no host memory");
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              GAUDI_CALL(ucx_gaudi_host_register)(host, SIZE_MAX));
    expect_log("they are no host memory");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_host_register)(nullptr, 1));
    expect_log("a pointer is NULL");
}

} // namespace gaudi::test
