/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of one process, used in another. */
#include "common/needs.h"
#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/fixture.h"

#include <atomic>
#include <csignal>
#include <thread>

#include <unistd.h>

namespace gaudi::test {

namespace {

class keys : public keys_test {
protected:
    /* The owner refuses the key. */
    void expect_reset(const unpacked &key, uint64_t at)
    {
        EXPECT_EQ(byte_at(key, at), -1);
        EXPECT_EQ(last_status, UCS_ERR_CONNECTION_RESET);
        (void)take_logs();
    }
};

/* Of memory that no way leads to. UCP's new protocols find others. */
ucs_status_t out_of_reach()
{
    return base::has_new_protocols() ? UCS_ERR_UNREACHABLE : UCS_ERR_IO_ERROR;
}
TEST_F(keys, are_equal_when_they_are_of_one_registration)
{
    exporter_process other;
    const uint64_t at = other.allocate(mebi, 1);
    const auto key    = other.key(at, mebi);
    const unpacked one(key);
    const unpacked same(key);
    const unpacked next(other.key(at, mebi));
    const unpacked host(other.key(other.allocate_host(mebi, 1), mebi));
    using domain = ipc::memory_domain;
    EXPECT_TRUE(domain::compare_keys(one.rkey(), same.rkey()) == 0);
    for (const unpacked *different : {&next, &host}) {
        const auto order = domain::compare_keys(one.rkey(), different->rkey());
        EXPECT_TRUE(order != 0);
        EXPECT_TRUE((order < 0) ==
                    (domain::compare_keys(different->rkey(), one.rkey()) > 0));
    }
    EXPECT_TRUE(domain::compare_keys(one.rkey(), UCT_INVALID_RKEY) != 0);
}

/* The addresses can be somebody else's when free has returned. */
TEST_F(keys, are_awaited_by_free_while_another_thread_ends_them)
{
    const base::held_cards cards = base::card_table::instance().cards();
    base::device_memory *memory;
    ASSERT_EQ(base::allocate(*cards.all().front(), mebi, false, memory),
              UCS_OK);
    const uint64_t at = memory->start;
    ipc::wire_key key;
    uct_mem_h memh =
        register_with_key(md, reinterpret_cast<void *>(at), mebi, key);
    auto *const used = ipc::exported_memory::begin_use(key.word, at, mebi);
    ASSERT_NE(used, nullptr);
    std::thread ending([&] { EXPECT_EQ(uct_md_mem_dereg(md, memh), UCS_OK); });
    EXPECT_TRUE(eventually(
        [&] { return !ipc::exported_memory::is_valid_key(key.word); }));
    std::atomic<pid_t> freer{0};
    std::atomic<bool> is_free{false};
    std::thread freeing([&] {
        freer = gettid();
        base::memory_map::instance().free(*memory);
        is_free = true;
    });
    EXPECT_TRUE(eventually(
        [&] { return is_free || ((freer != 0) && is_blocked(freer)); }));
    EXPECT_FALSE(is_free);
    used->end_use();
    freeing.join();
    ending.join();
}

TEST_F(keys, checks_ranges)
{
    exporter_process other;
    const uint64_t at = other.allocate(mebi, 1);
    unpacked remote(other.key(at + 4096, 8192));
    ASSERT_EQ(remote.status, UCS_OK);
    EXPECT_EQ(remote->check(at + 4096, 8192), UCS_OK);
    EXPECT_EQ(remote->check(at + 4096 + 8192, 0), UCS_OK);
    for (const auto &[start, length] :
         {std::pair<uint64_t, size_t>{at + 4095, 1},
          {at + 4096, 8193},
          {at + 4096 + 8192, 1},
          {at + 4097, SIZE_MAX},
          {UINT64_MAX, 2}}) {
        EXPECT_EQ(remote->check(start, length), UCS_ERR_INVALID_ADDR);
        EXPECT_THAT(take_logs(), ::testing::ElementsAre(::testing::HasSubstr(
                                     "are not in the 8192 bytes")));
    }
}

/* Of a stopped process, and of one that has ended. */
TEST_F(keys, are_unpacked_without_asking_anybody)
{
    exporter_process other;
    const auto device = other.key(other.allocate(mebi, 3), mebi);
    const auto host   = other.key(other.allocate_host(mebi, 4), mebi);
    for (const bool has_ended : {false, true}) {
        if (has_ended) {
            other.process.kill(SIGKILL);
            (void)other.process.wait();
        } else {
            other.process.stop();
        }
        for (const auto &key : {device, host}) {
            const unpacked remote(key);
            ASSERT_EQ(remote.status, UCS_OK);
            EXPECT_FALSE(remote->is_own());
            EXPECT_EQ(remote->process(), key.process);
            EXPECT_EQ(remote->check(key.address, 1), UCS_OK);
        }
    }
    const unpacked remote(device);
    EXPECT_EQ(byte_at(remote, device.address), -1);
    EXPECT_EQ(last_status, UCS_ERR_UNREACHABLE);
}

GAUDI_CHILD(has_no_card)
{
    uct_md_h md = open_md_of_child();
    GAUDI_CHILD_REQUIRE(base::card_table::instance().cards().empty());
    for (const bool of_device : {true, false}) {
        tell_parent("next");
        const unpacked remote(from_parent<ipc::wire_key>());
        GAUDI_CHILD_REQUIRE(
            ((remote.status == UCS_OK) ? remote->state() : remote.status) ==
            (of_device ? out_of_reach() : UCS_ERR_UNREACHABLE));
    }
    char bytes[64];
    ipc::wire_key key;
    uct_mem_h memh = register_with_key(md, bytes, sizeof(bytes), key);
    tell_parent(to_line(key));
    wait_for_parent();
    GAUDI_CHILD_REQUIRE(uct_md_mem_dereg(md, memh) == UCS_OK);
    uct_md_close(md);
    return 0;
}

/* Which need the owner. */
TEST_F(keys, are_unreachable_by_ports_without_a_card)
{
    const std::string node = "keys-" + std::to_string(getpid());
    child_options options;
    options.environment = {{"HLTHUNK_EMU_DEVICES", "1"},
                           {"HLTHUNK_EMU_NODE", node}};
    exporter_process owner(options);
    const auto device = owner.key(owner.allocate(mebi, 1), mebi);
    const auto host   = owner.key(owner.allocate_host(mebi, 1), mebi);

    options.environment.emplace_back("UCX_LOG_LEVEL", "fatal");
    options.environment.emplace_back("UCX_GAUDI_IPC_ROUTES", "ports");
    child_process poor("has_no_card", options);
    for (const auto &key : {device, host}) {
        ASSERT_EQ(poor.read_line(), "next");
        poor.write_line(to_line(key));
    }
    /* And its own memory can be used by others; not here, which is another
     * box. */
    ipc::wire_key its{};
    ASSERT_TRUE(from_line(poor.read_line(), its));
    EXPECT_EQ(its.kind, ipc::key_kind::host);
    EXPECT_EQ(unpacked(its).status, UCS_ERR_UNREACHABLE);
    poor.write_line("");
    expect_end(poor);
}

/* UCP's cache deregisters some time after it was told of the freeing. */
TEST_F(keys, end_when_their_memory_is_freed_which_they_do_not_keep)
{
    exporter_process other;
    uint64_t at = other.allocate(device_page(), 1);
    auto key    = other.key(at, device_page());
    /* Until the address comes back, which takes a while: hints go round. */
    for (unsigned round = 2; round < 8; ++round) {
        unpacked remote(key);
        ASSERT_EQ(byte_at(remote, at), static_cast<int>(round) - 1);
        other.free(at);
        EXPECT_EQ(other.ask_number("blocks"), 0u);
        EXPECT_EQ(other.ask_number("keys"), 0u);
        expect_reset(remote, at);
        const uint64_t next = other.allocate(device_page(), round);
        expect_reset(remote, at);
        if (round % 2 == 0) {
            other.deregister(key);
        } else {
            EXPECT_EQ(other.invalidate(key), UCS_OK);
        }
        at  = next;
        key = other.key(at, device_page());
    }
}

TEST_F(keys, are_nothing_to_a_forked_child)
{
    exporter_process other;
    const uint64_t at = other.allocate(mebi, 3);
    const auto key    = other.key(at, mebi);
    unpacked remote(key);
    ASSERT_EQ(remote.status, UCS_OK);
    ASSERT_EQ(remote->hold(), UCS_OK);
    forked_process child([&] {
        uct_rkey_bundle_t none{};
        const bool refused = (uct_rkey_unpack(&ipc::component(), &key, &none) ==
                              UCS_ERR_UNSUPPORTED);
        uct_rkey_bundle_t inherited{remote.rkey(), nullptr, nullptr};
        const bool dropped =
            (uct_rkey_release(&ipc::component(), &inherited) == UCS_OK);
        return (refused && dropped) ? 0 : 1;
    });
    EXPECT_EQ(child.wait().exit_code, 0);
    remote->release();
    EXPECT_EQ(byte_at(remote, at), 3);
}

} // namespace

} // namespace gaudi::test
