/* The cache of opened buffers. */
#include "common/process_state.h"
#include "uct/gaudi/ipc/sharing/invalidation.h"
#include "gtest/ipc/exporter.h"

#include <cerrno>

namespace gaudi::test {

namespace {

using remote_buffers = keys_test;

/* Buffers of their own, with keys. */
struct exported_blocks {
    exported_blocks(exporter_process &of, unsigned count)
    {
        for (unsigned i = 0; i < count; ++i) {
            addresses.push_back(
                of.allocate(device_page(), static_cast<unsigned char>(i + 1)));
            keys.push_back(of.key(addresses.back(), device_page()));
        }
    }
    std::vector<uint64_t> addresses;
    std::vector<ipc::wire_key> keys;
};

TEST_F(remote_buffers, opens_a_buffer_once_however_many_keys_point_into_it)
{
    exporter_process other;
    const uint64_t first  = other.allocate(mebi, 1);
    const uint64_t second = other.allocate(mebi, 2);
    std::vector<std::unique_ptr<unpacked>> remotes;
    for (int i = 0; i < 10; ++i) {
        remotes.push_back(
            std::make_unique<unpacked>(other.key(first + 4096 * i, 4096)));
        remotes.push_back(
            std::make_unique<unpacked>(other.key(second + 4096 * i, 4096)));
        EXPECT_EQ(byte_at(*remotes[2 * i], first + 4096 * i), 1);
        EXPECT_EQ(byte_at(*remotes[2 * i + 1], second + 4096 * i), 2);
    }
    EXPECT_EQ(cache().misses, 1u);
    EXPECT_EQ(cache().hits, 19u);
    EXPECT_EQ(cache().regions, 1u);
    EXPECT_EQ(cache().bytes, device_page());
    EXPECT_EQ(other.ask_number("exports"), 1u);

    /* It stays for the next one. */
    remotes.clear();
    EXPECT_EQ(unpacked(other.key(first, 4096)).status, UCS_OK);
    EXPECT_EQ(cache().misses, 1u);
}

TEST_F(remote_buffers, evicts_what_was_not_used_for_the_longest_time)
{
    reopen({{"CACHE_MAX_REGIONS", "2"}});
    exporter_process other;
    const exported_blocks blocks(other, 3);
    const auto before = cache();
    const auto misses = [&] { return cache().misses - before.misses; };
    unpacked a(blocks.keys[0]);
    unpacked b(blocks.keys[1]);
    EXPECT_EQ(byte_at(a, blocks.addresses[0]), 1); /* now b is older */
    unpacked c(blocks.keys[2]);
    EXPECT_EQ(cache().regions, 2u);
    EXPECT_EQ(cache().evictions - before.evictions, 1u);
    EXPECT_EQ(misses(), 3u);

    EXPECT_EQ(byte_at(a, blocks.addresses[0]), 1);
    EXPECT_EQ(byte_at(c, blocks.addresses[2]), 3);
    EXPECT_EQ(misses(), 3u);
    EXPECT_EQ(byte_at(b, blocks.addresses[1]), 2); /* opened again, a goes */
    EXPECT_EQ(misses(), 4u);
    EXPECT_EQ(byte_at(c, blocks.addresses[2]), 3);
    EXPECT_EQ(misses(), 4u);
    EXPECT_EQ(byte_at(a, blocks.addresses[0]), 1);
    EXPECT_EQ(misses(), 5u);
    EXPECT_EQ(cache().regions, 2u);
}

TEST_F(remote_buffers, is_bounded_by_bytes)
{
    const uint64_t most = 2 * device_page() + mebi;
    reopen({{"CACHE_MAX_SIZE", std::to_string(most)}});
    exporter_process other;
    const exported_blocks blocks(other, 4);
    for (const auto &key : blocks.keys) {
        EXPECT_EQ(unpacked(key).status, UCS_OK);
        EXPECT_LE(cache().bytes, most);
    }
    EXPECT_EQ(cache().regions, 2u);
}

TEST_F(remote_buffers, never_evicts_what_is_used)
{
    reopen({{"CACHE_MAX_REGIONS", "1"}});
    exporter_process other;
    const exported_blocks blocks(other, 3);
    unpacked a(blocks.keys[0]);
    uint64_t va;
    uint64_t still;
    ASSERT_EQ(a->hold(), UCS_OK);
    ASSERT_EQ(a->va_on(card(), blocks.addresses[0], va), 0);
    unpacked b(blocks.keys[1]);
    unpacked c(blocks.keys[2]);
    EXPECT_EQ(byte_at(b, blocks.addresses[1]), 2);
    EXPECT_EQ(byte_at(c, blocks.addresses[2]), 3);
    const uint64_t misses = cache().misses;
    EXPECT_EQ(a->va_on(card(), blocks.addresses[0], still), 0);
    EXPECT_EQ(still, va);
    EXPECT_EQ(cache().misses, misses);
    a->release();
    EXPECT_EQ(byte_at(b, blocks.addresses[1]), 2);
    EXPECT_EQ(cache().regions, 1u);
}

TEST_F(remote_buffers, lets_go_of_what_is_withdrawn)
{
    exporter_process other;
    const exported_blocks blocks(other, 2);
    unpacked a(blocks.keys[0]);
    unpacked b(blocks.keys[1]);
    EXPECT_EQ(byte_at(a, blocks.addresses[0]), 1);
    EXPECT_EQ(cache().regions, 2u);
    other.deregister(blocks.keys[0]);
    other.free(blocks.addresses[0]);
    EXPECT_EQ(other.ask_number("buffers"), 1u);
    EXPECT_TRUE(eventually([&] {
        (void)ipc::progress_invalidations();
        return cache().regions == 1;
    }));
    /* The driver takes back what is imported nowhere, when asked again. */
    EXPECT_TRUE(eventually([&] {
        other.free(other.allocate(device_page(), 7));
        return other.ask_number("blocks") == 1;
    }));
    EXPECT_EQ(byte_at(b, blocks.addresses[1]), 2);
    EXPECT_EQ(byte_at(a, blocks.addresses[0]), -1);
    EXPECT_EQ(last_status, UCS_ERR_REJECTED);
}

/* Its owner tells: this process makes no progress, and uses no key. */
TEST_F(remote_buffers, lets_go_of_what_is_withdrawn_without_being_asked)
{
    exporter_process other;
    const exported_blocks blocks(other, 2);
    unpacked a(blocks.keys[0]);
    unpacked b(blocks.keys[1]);
    EXPECT_EQ(cache().regions, 2u);
    const uint64_t withdrawn = cache().withdrawn;
    other.deregister(blocks.keys[0]);
    other.free(blocks.addresses[0]);
    EXPECT_TRUE(eventually([&] { return cache().regions == 1; }));
    EXPECT_EQ(cache().withdrawn, withdrawn + 1);
    EXPECT_EQ(byte_at(b, blocks.addresses[1]), 2);
    EXPECT_EQ(byte_at(a, blocks.addresses[0]), -1);
    EXPECT_EQ(last_status, UCS_ERR_REJECTED);
}

TEST_F(remote_buffers, lets_go_of_withdrawn_memory_when_its_user_is_done)
{
    exporter_process other;
    const exported_blocks blocks(other, 1);
    unpacked a(blocks.keys[0]);
    ASSERT_EQ(a->hold(), UCS_OK);
    other.deregister(blocks.keys[0]);
    other.free(blocks.addresses[0]);
    ipc::remote_buffers::instance().sweep();
    EXPECT_EQ(cache().regions, 1u);
    a->release();
    ipc::remote_buffers::instance().sweep();
    EXPECT_EQ(cache().regions, 0u);
}

TEST_F(remote_buffers, close_with_the_memory_domain)
{
    exporter_process other;
    const exported_blocks blocks(other, 1);
    unpacked a(blocks.keys[0]);
    EXPECT_EQ(byte_at(a, blocks.addresses[0]), 1);
    reopen({});
    EXPECT_EQ(cache().regions, 0u);
    EXPECT_EQ(byte_at(a, blocks.addresses[0]), 1);
    EXPECT_EQ(cache().regions, 1u);
}

TEST_F(remote_buffers, closed_with_keys_left_stay_closed)
{
    exporter_process other;
    const exported_blocks blocks(other, 1);
    unpacked a(blocks.keys[0]);
    uct_md_close(std::exchange(md, nullptr));
    EXPECT_EQ(use_of(blocks.keys[0]), out_of_reach());
    EXPECT_EQ(cache().regions, 0u);
    a.release();
}

TEST_F(remote_buffers, ten_thousand_rounds_leave_nothing_behind)
{
    reopen({{"CACHE_MAX_REGIONS", "8"}});
    exporter_process other;
    unsigned fds      = 0;
    unsigned mappings = 0;
    for (unsigned round = 0; round < 10'000; ++round) {
        /* Every 16th has a buffer of its own. */
        const uint64_t size = (round % 16 == 0) ? device_page() : mebi / 4;
        const uint64_t at =
            other.allocate(size, static_cast<unsigned char>(round));
        const auto key = other.key(at, size);
        {
            unpacked remote(key);
            ASSERT_EQ(remote.status, UCS_OK) << round;
            ASSERT_EQ(byte_at(remote, at + size - 1),
                      static_cast<int>(round & 0xff));
        }
        other.deregister(key);
        other.free(at);
        if (round == 100) {
            fds      = count_open_fds();
            mappings = count_mappings();
        }
    }
    EXPECT_LE(cache().regions, 8u);
    EXPECT_LE(count_open_fds(), fds + 16);
    EXPECT_LE(count_mappings(), mappings + 32);
    EXPECT_EQ(other.ask_number("keys"), 0u);
    EXPECT_LE(other.ask_number("blocks"), 12u);
}

} // namespace

} // namespace gaudi::test
