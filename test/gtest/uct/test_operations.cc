/* SPDX-License-Identifier: BSD-3-Clause */
/* Every operation, at the sizes and offsets where things go wrong. */
#include "gtest/uct/fixture.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace gaudi::test {

namespace {

enum class direction { put, get };
enum class method { short_, bcopy, zcopy };

struct operation {
    direction where;
    method how;
    bool registered;
};

std::string name_of(const operation &what)
{
    const char *methods[] = {"short", "bcopy", "zcopy"};
    std::string name      = (what.where == direction::put) ? "put_" : "get_";
    name += methods[static_cast<int>(what.how)];
    return name + (what.registered ? "_registered" : "_staged");
}

[[maybe_unused]] void PrintTo(const operation &what, std::ostream *out)
{
    *out << name_of(what);
}

constexpr size_t page = 4096;

class every_operation : public uct,
                        public ::testing::WithParamInterface<operation> {
protected:
    /* One operation, to its end. */
    void run(void *local, size_t size, uint64_t remote)
    {
        counted_completion done;
        ucs_status_t status = UCS_OK;
        const bool put      = (GetParam().where == direction::put);

        switch (GetParam().how) {
        case method::short_:
            status = put ? tl->put_short(local, size, remote)
                         : tl->get_short(local, size, remote);
            ASSERT_EQ(UCS_OK, status);
            return;
        case method::bcopy:
            if (put) {
                ASSERT_EQ(static_cast<ssize_t>(size),
                          tl->put_bcopy(local, size, remote));
                tl->flush();
                return;
            }
            status = tl->get_bcopy(local, size, remote, &done);
            break;
        case method::zcopy:
            status = put ? tl->put_zcopy(local, size, remote, &done)
                         : tl->get_zcopy(local, size, remote, &done);
            break;
        }
        if (status == UCS_OK) {
            EXPECT_EQ(0u, done.calls);
            return;
        }
        ASSERT_EQ(UCS_INPROGRESS, status);
        EXPECT_EQ(0u, done.calls) << "completed before progress";
        while (done.calls == 0) {
            tl->progress();
        }
        EXPECT_TRUE(ended_once(done));
    }

    /* Operate on `size` bytes of a device buffer, and look at all of it. */
    void check(device_buffer &device, size_t device_size, size_t offset,
               size_t size)
    {
        SCOPED_TRACE(::testing::Message() << size << " bytes at " << offset);
        const bool put        = (GetParam().where == direction::put);
        const uint64_t remote = device.remote(offset);
        const size_t before   = std::min<size_t>(offset, 64);
        const size_t after = std::min<size_t>(device_size - offset - size, 64);
        guarded_buffer local(std::max<size_t>(size, 1));
        std::vector<char> around(before + after);
        std::unique_ptr<registration> memh;
        if (GetParam().registered && (size > 0)) {
            memh = std::make_unique<registration>(md, local.data(), size);
        }

        /* The other side holds another pattern, so that "did nothing" fails. */
        std::vector<char> other(before + size + after);
        fill_pattern(other.data(), other.size(), 7);
        ASSERT_EQ(UCS_OK,
                  tl->put_short(other.data(), other.size(), remote - before));
        fill_pattern(local.data(), size, put ? 1 : 2);

        const hlthunk_emu_counters start = engine_hooks::counters();
        run(local.data(), size, remote);
        const hlthunk_emu_counters end = engine_hooks::counters();
        EXPECT_EQ(put ? size : 0,
                  end.host_to_device_bytes - start.host_to_device_bytes);
        EXPECT_EQ(put ? 0 : size,
                  end.device_to_host_bytes - start.device_to_host_bytes);

        std::fill(other.begin(), other.end(), '\0');
        tl->read_device(other.data(), remote - before, other.size());
        EXPECT_TRUE(has_pattern(other.data(), before, 7));
        EXPECT_TRUE(
            has_pattern(other.data() + before + size, after, 7, before + size));
        if (put) {
            EXPECT_TRUE(has_pattern(other.data() + before, size, 1));
        } else {
            EXPECT_TRUE(has_pattern(local.data(), size, 7, before));
        }
    }

    [[nodiscard]] size_t max_size() const
    {
        return (GetParam().how == method::bcopy) ? tl->attr.cap.put.max_bcopy
                                                 : SIZE_MAX;
    }
};

} // namespace

TEST_P(every_operation, moves_exactly_the_bytes_it_is_asked_to)
{
    const size_t device_size = 2 * device_page() + page;
    device_buffer device(md, device_size);

    for (size_t size : {0ul, 1ul, 3ul, 8ul, 127ul, page - 1, page, page + 1,
                        65535ul, 65536ul, 65537ul, 1048577ul}) {
        if (size > max_size()) {
            continue;
        }
        for (size_t offset : {0ul, 1ul, 77ul, page - 1, page}) {
            check(device, device_size, offset, size);
        }
    }
}

TEST_P(every_operation, crosses_pages_of_the_card)
{
    const size_t device_size = 3 * device_page();
    device_buffer device(md, device_size);

    for (size_t size : {2ul, page, 65536ul, 1048576ul, device_page() + 2}) {
        if (size <= max_size()) {
            check(device, device_size, device_page() - 1, size);
        }
    }
}

TEST_P(every_operation, reaches_the_last_byte_of_an_allocation)
{
    const size_t device_size = device_page() + 5;
    device_buffer device(md, device_size);
    check(device, device_size, device_size - 1, 1);
    check(device, device_size, device_size - 4097, 4097);
}

/* A gibibyte where that is one job of the card. What is staged goes in pieces,
 * and 48 MiB are many times the staging memory. */
TEST_P(every_operation, moves_as_much_as_a_program_likes)
{
    const bool at_once =
        (GetParam().how == method::zcopy) && GetParam().registered;
    const size_t size = (at_once ? 1024ul : 48ul) << 20;
    if (max_size() < size) {
        /* bcopy: as many operations as it takes */
        device_buffer device(md, 4 * max_size());
        for (size_t i = 0; i < 4; ++i) {
            check(device, 4 * max_size(), i * max_size(), max_size());
        }
        return;
    }
    device_buffer device(md, size + page);
    check(device, size + page, 11, size);
}

INSTANTIATE_TEST_SUITE_P(
    put_and_get, every_operation,
    ::testing::Values(operation{direction::put, method::short_, false},
                      operation{direction::put, method::short_, true},
                      operation{direction::put, method::bcopy, false},
                      operation{direction::put, method::zcopy, false},
                      operation{direction::put, method::zcopy, true},
                      operation{direction::get, method::short_, false},
                      operation{direction::get, method::short_, true},
                      operation{direction::get, method::bcopy, false},
                      operation{direction::get, method::zcopy, false},
                      operation{direction::get, method::zcopy, true}),
    [](const auto &test) { return name_of(test.param); });

/* --- whatever memory is on either side: it works, or it is refused ---------
 */

namespace {

class memory_pairs : public uct {
protected:
    memory_pairs()
    {
        fill_pattern(host.data(), size, 1);
        put(host.data(), first.remote());
    }

    void put(const void *local, uint64_t remote)
    {
        EXPECT_EQ(UCS_OK, tl->put_short(local, size, remote));
    }

    void expect_device(const device_buffer &device, uint64_t seed)
    {
        EXPECT_TRUE(tl->holds(device.remote(), size, seed));
    }

    static uint64_t as_remote(const void *host_address)
    {
        return reinterpret_cast<uintptr_t>(host_address);
    }

    static constexpr size_t size = 300001;
    device_buffer first{md, size};
    device_buffer second{md, size};
    guarded_buffer host{size};
    guarded_buffer back{size};
};

} // namespace

TEST_F(memory_pairs, device_to_device_is_copied_on_the_card)
{
    const auto start = engine_hooks::counters();
    put(first.data(), second.remote());
    tl->put(first.data(), size, second.remote());
    tl->get(second.data(), size, first.remote());
    EXPECT_EQ(UCS_OK, tl->get_short(second.data(), size, first.remote()));
    const auto end = engine_hooks::counters();
    EXPECT_EQ(4 * size,
              end.device_to_device_bytes - start.device_to_device_bytes);
    EXPECT_EQ(start.host_to_device_bytes, end.host_to_device_bytes);
    EXPECT_EQ(start.device_to_host_bytes, end.device_to_host_bytes);
    expect_device(second, 1);
}

TEST_F(memory_pairs, a_device_source_of_put_short_reaches_host_memory)
{
    put(first.data(), as_remote(back.data()));
    EXPECT_TRUE(has_pattern(back.data(), size, 1));
}

TEST_F(memory_pairs, a_device_target_of_get_takes_host_memory)
{
    fill_pattern(host.data(), size, 2);
    EXPECT_EQ(UCS_OK,
              tl->get_short(second.data(), size, as_remote(host.data())));
    expect_device(second, 2);
    fill_pattern(host.data(), size, 3);
    tl->get(second.data(), size, as_remote(host.data()));
    expect_device(second, 3);
}

TEST_F(memory_pairs, get_bcopy_by_memcpy_reaches_device_memory)
{
    /* As UCP does: memcpy, and the user's buffer as its argument. */
    const size_t length = tl->attr.cap.get.max_bcopy;
    counted_completion done;
    EXPECT_EQ(UCS_INPROGRESS,
              uct_ep_get_bcopy(tl->ep, unpack_by_memcpy(), second.data(),
                               length, first.remote(), UCT_INVALID_RKEY,
                               &done));
    tl->flush();
    EXPECT_EQ(1u, done.calls);
    EXPECT_TRUE(tl->holds(second.remote(), length, 1));
}

TEST_F(memory_pairs, get_bcopy_passes_any_argument_to_another_callback)
{
    static std::vector<char> data;
    static void *seen;
    auto unpack = [](void *arg, const void *bytes, size_t length) {
        const auto *first_byte = static_cast<const char *>(bytes);
        seen                   = arg;
        data.assign(first_byte, first_byte + length);
    };
    void *cookie = reinterpret_cast<void *>(0x4242000000000001);
    EXPECT_EQ(UCS_INPROGRESS,
              uct_ep_get_bcopy(tl->ep, unpack, cookie, 100, first.remote(),
                               UCT_INVALID_RKEY, nullptr));
    tl->flush();
    EXPECT_EQ(cookie, seen);
    ASSERT_EQ(100u, data.size());
    EXPECT_TRUE(has_pattern(data.data(), data.size(), 1));
}

TEST_F(memory_pairs, host_to_host_is_a_plain_copy)
{
    const auto start = engine_hooks::counters();
    /* Since it was asked last. */
    const auto copied = [&] {
        const auto answer = has_pattern(back.data(), size, 1);
        std::memset(back.data(), 0, size);
        return answer;
    };
    put(host.data(), as_remote(back.data()));
    EXPECT_TRUE(copied());
    EXPECT_EQ(UCS_OK, tl->get_short(back.data(), size, as_remote(host.data())));
    EXPECT_TRUE(copied());
    tl->put(host.data(), size, as_remote(back.data()));
    EXPECT_TRUE(copied());
    tl->get(back.data(), size, as_remote(host.data()));
    EXPECT_TRUE(copied());

    EXPECT_EQ(4, tl->put_bcopy("word", 4, as_remote(back.data())));
    tl->flush();
    EXPECT_EQ(0, std::memcmp(back.data(), "word", 4));

    char word[4];
    EXPECT_EQ(UCS_OK, tl->get_bcopy(word, 4, as_remote(back.data()), nullptr));
    EXPECT_EQ(0, std::memcmp(word, "word", 4));
    EXPECT_EQ(start.jobs, engine_hooks::counters().jobs)
        << "the card has nothing to do here";
}

TEST_F(memory_pairs, a_registration_is_found_by_pointer_at_any_offset)
{
    guarded_buffer large(size + 8192);
    fill_pattern(large.data(), large.size(), 4);
    registration memh(md, large.data(), large.size());
    const uint64_t jobs = engine_hooks::counters().jobs;
    tl->put(large.data() + 4099, size, first.remote());
    EXPECT_EQ(jobs + 1, engine_hooks::counters().jobs)
        << "registered memory takes one job, staged memory one per chunk";
    EXPECT_TRUE(tl->holds(first.remote(), size, 4, 4099));
}

TEST_F(memory_pairs, a_range_that_leaves_its_registration_is_staged)
{
    const registration partial(md, host.data(), size / 2);
    tl->put(host.data(), size, second.remote());
    expect_device(second, 1);
}

TEST_F(memory_pairs, deregistration_under_a_transfer_does_not_break_it)
{
    auto memh = std::make_unique<registration>(md, host.data(), size);
    counted_completion done;
    engine_hooks::pause(true);
    tl->start_put(host.data(), size, second.remote(), &done);
    memh.reset();
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(UCS_OK, done.status);
    expect_device(second, 1);
}

} // namespace gaudi::test
