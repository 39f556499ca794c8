/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache of opened buffers. */
#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/ipc/sharing/invalidation.h"
#include "gtest/ipc/exporter.h"

#include <algorithm>
#include <cerrno>

namespace gaudi::test {

namespace {

using remote_buffers = keys_test;

/* What is imported of a block of one page for a copy within its beginning. */
uint64_t window_of_page()
{
    return std::min(device_page(), base::window_grain);
}

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
    EXPECT_EQ(cache().bytes, window_of_page());
    EXPECT_EQ(other.ask_number("exports"), 2u); /* one to see if it can */

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
    const uint64_t most = 2 * window_of_page() + mebi;
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
    base::kept_range kept;
    ASSERT_EQ(a->hold(), UCS_OK);
    ASSERT_EQ(a->keep(blocks.addresses[0], 1, kept), UCS_OK);
    ASSERT_EQ(a->va_on(card(), blocks.addresses[0], 1, va), 0);
    unpacked b(blocks.keys[1]);
    unpacked c(blocks.keys[2]);
    EXPECT_EQ(byte_at(b, blocks.addresses[1]), 2);
    EXPECT_EQ(byte_at(c, blocks.addresses[2]), 3);
    const uint64_t misses = cache().misses;
    EXPECT_EQ(a->va_on(card(), blocks.addresses[0], 1, still), 0);
    EXPECT_EQ(still, va);
    EXPECT_EQ(cache().misses, misses);
    kept.reset();
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
    base::kept_range kept;
    ASSERT_EQ(a->hold(), UCS_OK);
    ASSERT_EQ(a->keep(blocks.addresses[0], 1, kept), UCS_OK);
    other.deregister(blocks.keys[0]);
    other.free(blocks.addresses[0]);
    ipc::remote_buffers::instance().sweep();
    EXPECT_EQ(cache().regions, 1u);
    kept.reset();
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
    (void)take_logs();
    EXPECT_EQ(cache().regions, 0u);
    a.release();
}

/* A block as large as a framework's, but for what it costs: memory that nobody
 * writes takes none. */
class windows : public keys_test {
protected:
    static constexpr uint64_t grain = base::window_grain;
    static constexpr uint64_t size  = 1024 * grain;

    void SetUp() override
    {
        keys_test::SetUp();
        at  = other.allocate(size, 0x5a);
        key = other.key(at, size);
        ASSERT_EQ(key.buffer.parts, 1u);
        ASSERT_EQ(key.buffer.address, at);
        end = at + size;
    }

    /* A window that an operation uses. */
    struct use {
        use(const unpacked &of, uint64_t address, uint64_t length)
        {
            EXPECT_EQ(of->keep(address, length, kept), UCS_OK);
        }
        base::kept_range kept;
    };

    exporter_process other;
    uint64_t at  = 0;
    uint64_t end = 0;
    ipc::wire_key key{};
};

TEST_F(windows, of_a_large_block_are_imported_when_they_are_used)
{
    const unpacked remote(other.key(at, mebi));
    EXPECT_EQ(cache().bytes, grain);
    EXPECT_EQ(byte_at(remote, at), 0x5a);
    EXPECT_EQ(cache().bytes, grain);
    const unpacked last(other.key(end - mebi, mebi));
    EXPECT_EQ(last_byte(last, end - mebi, mebi), 0x5a);
    EXPECT_EQ(cache().bytes, 2 * grain);
    EXPECT_EQ(cache().misses, 2u);
}

TEST_F(windows, are_all_that_is_imported_of_a_framework)
{
    exporter_process framework({{{"GAUDI_TEST_FRAMEWORK", ""}}, -1},
                               "exports_memory_of_a_framework");
    const uint64_t tensor = framework.ask_number("tensor", mebi, 0x3c);
    const auto its_key    = framework.key(tensor, mebi);
    EXPECT_GT(its_key.buffer.size, 100 * grain);
    const unpacked remote(its_key);
    EXPECT_EQ(last_byte(remote, tensor, mebi), 0x3c);
    EXPECT_EQ(cache().bytes, grain);
}

TEST_F(windows, serve_all_ranges_that_they_cover)
{
    const unpacked whole(key);
    std::vector<std::unique_ptr<unpacked>> remotes;
    for (uint64_t offset = 0; offset < grain; offset += grain / 8) {
        remotes.push_back(
            std::make_unique<unpacked>(other.key(at + offset, grain / 8)));
        EXPECT_GE(last_byte(*remotes.back(), at + offset, grain / 8), 0);
        EXPECT_GE(last_byte(whole, at + offset, grain / 8), 0);
    }
    EXPECT_EQ(cache().misses, 1u);
    EXPECT_EQ(cache().hits, 8u);
    EXPECT_EQ(cache().bytes, grain);
}

TEST_F(windows, cover_ranges_across_grains)
{
    const unpacked remote(key);
    EXPECT_EQ(last_byte(remote, end - grain - 1, grain + 1), 0x5a);
    EXPECT_EQ(cache().bytes, 3 * grain);
    /* What it has of the next range serves that. */
    EXPECT_EQ(last_byte(remote, end - mebi, mebi), 0x5a);
    EXPECT_EQ(cache().bytes, 3 * grain);
    EXPECT_EQ(last_byte(remote, end - 2 * grain - 1, 2 * grain + 1), 0x5a);
    EXPECT_EQ(cache().bytes, 6 * grain);
    EXPECT_EQ(cache().misses, 3u);
}

TEST_F(windows, that_take_long_are_imported_in_the_background)
{
    const unpacked remote(key);
    const uint64_t length = 16 * grain;
    const uint64_t start  = end - length;
    uint64_t va           = 0;
    ASSERT_EQ(remote->hold(), UCS_OK);
    {
        const use range(remote, start, length);
        EXPECT_EQ(remote->va_on(card(), start, length, va), -EINPROGRESS);
        EXPECT_TRUE(eventually([&] {
            const int error = remote->va_on(card(), start, length, va);
            EXPECT_TRUE((error == 0) || (error == -EINPROGRESS));
            return error == 0;
        }));
        EXPECT_EQ(cache().bytes, 17 * grain);
        EXPECT_EQ(cache().misses, 2u);
        uint64_t again = 0;
        EXPECT_EQ(remote->await_va_on(card(), start, length, again), 0);
        EXPECT_EQ(again, va);
    }
    remote->release();
    EXPECT_EQ(last_byte(remote, start, length), 0x5a);
    EXPECT_EQ(cache().misses, 2u);
}

TEST_F(windows, can_be_waited_for)
{
    const unpacked remote(key);
    const uint64_t length = 16 * grain;
    const uint64_t start  = end - length;
    uint64_t va           = 0;
    uint64_t same         = 0;
    ASSERT_EQ(remote->hold(), UCS_OK);
    const use range(remote, start, length);
    EXPECT_EQ(remote->va_on(card(), start, length, va), -EINPROGRESS);
    EXPECT_EQ(remote->await_va_on(card(), start, length, va), 0);
    EXPECT_EQ(remote->va_on(card(), start, length, same), 0);
    EXPECT_EQ(same, va);
    EXPECT_EQ(cache().misses, 2u);
    remote->release();
}

TEST_F(windows, being_imported_are_waited_for_when_the_memory_domain_closes)
{
    unpacked remote(key);
    uint64_t va = 0;
    ASSERT_EQ(remote->hold(), UCS_OK);
    EXPECT_EQ(remote->va_on(card(), at, size, va), -EINPROGRESS);
    remote->release();
    remote.release();
    reopen({});
    EXPECT_EQ(cache().regions, 0u);
    EXPECT_EQ(cache().bytes, 0u);
}

TEST_F(windows, are_evicted_one_by_one)
{
    reopen({{"CACHE_MAX_SIZE", std::to_string(3 * grain)}});
    const unpacked remote(key);
    const auto before = cache();
    for (uint64_t i = 1; i < 10; ++i) {
        EXPECT_GE(byte_at(remote, at + i * grain), 0);
        EXPECT_LE(cache().bytes, 3 * grain);
    }
    EXPECT_EQ(cache().regions, 3u);
    EXPECT_EQ(cache().evictions - before.evictions, 7u);
    EXPECT_GE(byte_at(remote, at + 9 * grain), 0);
    EXPECT_EQ(cache().misses - before.misses, 9u);
    EXPECT_EQ(byte_at(remote, at), 0x5a); /* imported again */
    EXPECT_EQ(cache().misses - before.misses, 10u);
}

TEST_F(windows, that_are_used_are_not_evicted)
{
    reopen({{"CACHE_MAX_REGIONS", "1"}});
    const unpacked remote(key);
    uint64_t va   = 0;
    uint64_t same = 0;
    ASSERT_EQ(remote->hold(), UCS_OK);
    {
        const use first(remote, at, mebi);
        ASSERT_EQ(remote->va_on(card(), at, mebi, va), 0);
        for (uint64_t i = 1; i < 4; ++i) {
            EXPECT_GE(byte_at(remote, at + i * grain), 0);
            EXPECT_LE(cache().regions, 2u);
        }
        /* Nor is another one found that covers the range, too. */
        EXPECT_GE(last_byte(remote, at, 2 * grain), 0);
        const uint64_t misses = cache().misses;
        EXPECT_EQ(remote->va_on(card(), at, mebi, same), 0);
        EXPECT_EQ(same, va);
        EXPECT_EQ(cache().misses, misses);
    }
    remote->release();
    EXPECT_GE(byte_at(remote, at + 5 * grain), 0);
    EXPECT_EQ(cache().regions, 1u);
}

TEST_F(windows, go_when_the_block_is_withdrawn)
{
    const unpacked remote(key);
    for (uint64_t i = 0; i < 4; ++i) {
        EXPECT_GE(byte_at(remote, at + i * grain), 0);
    }
    EXPECT_EQ(cache().regions, 4u);
    other.deregister(key);
    other.free(at);
    EXPECT_TRUE(eventually([&] { return cache().regions == 0; }));
    EXPECT_EQ(cache().withdrawn, 4u);
    EXPECT_EQ(byte_at(remote, at), -1);
    EXPECT_EQ(last_status, UCS_ERR_REJECTED);
}

TEST_F(windows, are_given_within_the_block_only)
{
    const unpacked remote(key);
    std::shared_ptr<ipc::remote_process> owner;
    ASSERT_EQ(ipc::remote_process::open(key.process, owner), UCS_OK);
    const auto ask = [&](uint64_t offset, uint64_t length) {
        ipc::file_pair files;
        return owner->get_files(key.buffer.file, files, {-1, -1},
                                {offset, length});
    };
    const uint64_t block = key.buffer.size;
    EXPECT_EQ(ask(block - 4096, 4096), UCS_OK);
    for (const auto &[offset, length] : {std::pair<uint64_t, uint64_t>{0, 0},
                                         {block, 4096},
                                         {block - 4096, 8192},
                                         {0, block + 4096},
                                         {UINT64_MAX - 4095, 8192},
                                         {4096, UINT64_MAX - 4095},
                                         {1, 4096},
                                         {0, 4097}}) {
        EXPECT_EQ(ask(offset, length), UCS_ERR_INVALID_PARAM)
            << offset << " " << length;
    }
    EXPECT_EQ(byte_at(remote, at), 0x5a);
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
