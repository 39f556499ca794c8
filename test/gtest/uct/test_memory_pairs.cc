/* Whatever memory is on either side: it works, or it is refused. */
#include "gtest/uct/fixture.h"

#include <cstring>
#include <vector>

namespace gaudi::test {

namespace {

constexpr size_t size = 300001;

class memory_pairs : public uct {
protected:
    void SetUp() override
    {
        uct::SetUp();
        first  = std::make_unique<device_buffer>(md, size);
        second = std::make_unique<device_buffer>(md, size);
        fill_pattern(host.data(), size, 1);
        put(host.data(), first->remote());
    }

    void put(const void *local, uint64_t remote)
    {
        ASSERT_EQ(UCS_OK, tl->put_short(local, size, remote));
    }

    void expect_device(const device_buffer &device, uint64_t seed)
    {
        EXPECT_TRUE(tl->holds(device.remote(), size, seed));
    }

    static uint64_t as_remote(const void *host_address)
    {
        return reinterpret_cast<uintptr_t>(host_address);
    }

    std::unique_ptr<device_buffer> first;
    std::unique_ptr<device_buffer> second;
    guarded_buffer host{size};
    guarded_buffer back{size};
};

} // namespace

TEST_F(memory_pairs, device_to_device_is_copied_on_the_card)
{
    const auto start = engine_hooks::counters();
    put(first->data(), second->remote());
    tl->put(first->data(), size, second->remote());
    tl->get(second->data(), size, first->remote());
    EXPECT_EQ(UCS_OK, tl->get_short(second->data(), size, first->remote()));
    const auto end = engine_hooks::counters();
    EXPECT_EQ(4 * size,
              end.device_to_device_bytes - start.device_to_device_bytes);
    EXPECT_EQ(start.host_to_device_bytes, end.host_to_device_bytes);
    EXPECT_EQ(start.device_to_host_bytes, end.device_to_host_bytes);
    expect_device(*second, 1);
}

TEST_F(memory_pairs, a_device_source_of_put_short_reaches_host_memory)
{
    put(first->data(), as_remote(back.data()));
    EXPECT_TRUE(has_pattern(back.data(), size, 1));
}

TEST_F(memory_pairs, a_device_target_of_get_takes_host_memory)
{
    fill_pattern(host.data(), size, 2);
    EXPECT_EQ(UCS_OK,
              tl->get_short(second->data(), size, as_remote(host.data())));
    expect_device(*second, 2);
    fill_pattern(host.data(), size, 3);
    tl->get(second->data(), size, as_remote(host.data()));
    expect_device(*second, 3);
}

TEST_F(memory_pairs, get_bcopy_by_memcpy_reaches_device_memory)
{
    /* As UCP does: memcpy, and the user's buffer as its argument. */
    const size_t length = tl->attr.cap.get.max_bcopy;
    counted_completion done;
    EXPECT_EQ(UCS_INPROGRESS,
              uct_ep_get_bcopy(tl->ep, unpack_by_memcpy(), second->data(),
                               length, first->remote(), UCT_INVALID_RKEY,
                               &done));
    tl->flush();
    EXPECT_EQ(1u, done.calls);
    EXPECT_TRUE(tl->holds(second->remote(), length, 1));
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
              uct_ep_get_bcopy(tl->ep, unpack, cookie, 100, first->remote(),
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
    counted_completion put_done;
    counted_completion get_done;
    tl->start_put(host.data(), size, as_remote(back.data()), &put_done);
    tl->flush();
    EXPECT_TRUE(copied());
    tl->start_get(back.data(), size, as_remote(host.data()), &get_done);
    tl->flush();
    EXPECT_TRUE(copied());
    EXPECT_EQ(1u, put_done.calls);
    EXPECT_EQ(1u, get_done.calls);

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
    tl->put(large.data() + 4099, size, first->remote());
    EXPECT_EQ(jobs + 1, engine_hooks::counters().jobs)
        << "registered memory takes one job, staged memory one per chunk";
    EXPECT_TRUE(tl->holds(first->remote(), size, 4, 4099));
}

TEST_F(memory_pairs, a_range_that_leaves_its_registration_is_staged)
{
    auto partial = std::make_unique<registration>(md, host.data(), size / 2);
    tl->put(host.data(), size, second->remote());
    expect_device(*second, 1);
}

TEST_F(memory_pairs, deregistration_under_a_transfer_does_not_break_it)
{
    auto memh = std::make_unique<registration>(md, host.data(), size);
    counted_completion done;
    engine_hooks::pause(true);
    tl->start_put(host.data(), size, second->remote(), &done);
    memh.reset();
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(UCS_OK, done.status);
    expect_device(*second, 1);
}

} // namespace gaudi::test
