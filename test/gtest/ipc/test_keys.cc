/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of one process, used in another. */
#include "common/needs.h"
#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/fixture.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>

namespace gaudi::test {

namespace {

using keys = keys_test;
using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start)
{
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

/* Unpacked, but good for nothing. */
void expect_gone(const ipc::wire_key &key)
{
    unpacked remote(key);
    ASSERT_EQ(remote.status, UCS_OK);
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, remote->failure());
    EXPECT_FALSE(remote->is_own());
    EXPECT_EQ(remote->process(), key.process);
    EXPECT_EQ(remote->check(key.address, 1), UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_EQ(remote->hold(), UCS_ERR_ENDPOINT_TIMEOUT);
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

TEST_F(keys, device_memory_of_another_process_is_read)
{
    exporter_process other;
    const uint64_t at = other.allocate(3 * mebi, 0x5a);
    const auto key    = other.key(at, 3 * mebi);
    EXPECT_EQ(key.kind, ipc::key_kind::device);

    unpacked remote(key);
    ASSERT_EQ(remote.status, UCS_OK);
    EXPECT_FALSE(remote->is_own());
    EXPECT_EQ(remote->process(), key.process);
    EXPECT_EQ(remote->host(), nullptr);
    EXPECT_EQ(byte_at(remote, at), 0x5a);
    EXPECT_EQ(byte_at(remote, at + 3 * mebi - 1), 0x5a);
}

TEST_F(keys, host_memory_of_another_process_is_read_by_the_cpu)
{
    exporter_process other;
    const uint64_t at = other.allocate_host(100'000, 0x77);
    const auto key    = other.key(at, 100'000);
    EXPECT_EQ(key.kind, ipc::key_kind::host);

    unpacked remote(key);
    ASSERT_EQ(remote.status, UCS_OK);
    EXPECT_NE(remote->host(), nullptr);
    EXPECT_EQ(byte_at(remote, at + 99'999), 0x77);
}

TEST_F(keys, is_read_from_any_alignment)
{
    exporter_process other;
    const uint64_t at = other.allocate_host(64, 0x11);
    const auto key    = other.key(at, 64);
    std::array<char, sizeof(key) + 8> bytes{};
    for (size_t i = 0; i < 8; ++i) {
        std::memcpy(&bytes[i], &key, sizeof(key));
        unpacked remote(&bytes[i]);
        ASSERT_EQ(remote.status, UCS_OK);
        EXPECT_EQ(byte_at(remote, at), 0x11);
    }
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

TEST_F(keys, of_the_own_process_are_pointers)
{
    char bytes[64];
    ipc::wire_key key;
    uct_mem_h memh = register_with_key(md, bytes, sizeof(bytes), key);
    {
        unpacked own(key);
        ASSERT_EQ(own.status, UCS_OK);
        EXPECT_TRUE(own->is_own());
        EXPECT_EQ(own->process(), ipc::own_process());
    }
    ipc::wire_key longer = key;
    longer.length += 1;
    EXPECT_EQ(use_of(longer), UCS_ERR_CONNECTION_RESET);
    {
        unpacked own(key);
        EXPECT_EQ(own->state(), UCS_OK);
        EXPECT_EQ(uct_md_mem_dereg(md, memh), UCS_OK);
        EXPECT_EQ(own->state(), UCS_ERR_CONNECTION_RESET);
    }
    EXPECT_EQ(use_of(key), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(ipc::to_remote_key(UCT_INVALID_RKEY), nullptr);
}

TEST_F(keys, end_with_their_registration)
{
    exporter_process other;
    for (const bool of_device : {true, false}) {
        const uint64_t at =
            of_device ? other.allocate(mebi, 9) : other.allocate_host(mebi, 9);
        const auto key = other.key(at, mebi);
        unpacked remote(key);
        ASSERT_EQ(remote.status, UCS_OK);
        EXPECT_EQ(byte_at(remote, at), 9);
        other.deregister(key);
        EXPECT_EQ(byte_at(remote, at), -1);
        EXPECT_EQ(last_status, UCS_ERR_CONNECTION_RESET);
        EXPECT_EQ(remote->check(at, 1), UCS_ERR_CONNECTION_RESET);
        EXPECT_EQ(use_of(key), UCS_ERR_CONNECTION_RESET);
    }
}

TEST_F(keys, of_a_dead_process_fail)
{
    auto other        = std::make_unique<exporter_process>();
    const uint64_t at = other->allocate(mebi, 3);
    const auto device = other->key(at, mebi);
    const uint64_t h  = other->allocate_host(mebi, 4);
    const auto host   = other->key(h, mebi);
    const auto unused = other->key(other->allocate(device_page(), 5), mebi);

    unpacked remote(device);
    unpacked remote_host(host);
    ASSERT_EQ(remote.status, UCS_OK);
    ASSERT_EQ(remote_host.status, UCS_OK);
    ASSERT_EQ(byte_at(remote, at), 3);

    ASSERT_EQ(remote->hold(), UCS_OK); /* an operation is under way */
    other->process.kill(SIGKILL);
    (void)other->process.wait();

    EXPECT_TRUE(eventually(
        [&] { return remote->check(at, 1) == UCS_ERR_ENDPOINT_TIMEOUT; }));
    EXPECT_EQ(remote_host->hold(), UCS_ERR_ENDPOINT_TIMEOUT);
    for (const auto &key : {device, unused, host}) {
        expect_gone(key);
    }
    remote->release();

    ipc::foreign_pages::instance().sweep();
    EXPECT_EQ(processes(), 0u);
}

TEST_F(keys, of_a_dead_process_that_nobody_knew_fail)
{
    auto other        = std::make_unique<exporter_process>();
    const auto device = other->key(other->allocate(mebi, 3), mebi);
    const auto host   = other->key(other->allocate_host(mebi, 4), mebi);
    other->process.kill(SIGKILL);
    (void)other->process.wait();
    expect_gone(device);
    expect_gone(host);

    /* Another process has its pid by now. */
    exporter_process next;
    const auto later           = next.key(next.allocate(mebi, 5), mebi);
    auto earlier               = device;
    earlier.process.pid        = later.process.pid;
    earlier.process.start_time = later.process.start_time - 1;
    expect_gone(earlier);
    EXPECT_EQ(processes(), 0u);
}

TEST_F(keys, wait_for_their_process_as_long_as_is_set)
{
    exporter_process other;
    const uint64_t at = other.allocate(mebi, 0x44);
    const auto key    = other.key(at, mebi);
    other.process.stop();
    /* Longer than by default. How much longer depends on the machine. */
    reopen({{"TIMEOUT", "1300ms"}});
    const auto start = steady_clock::now();
    EXPECT_EQ(use_of(key), out_of_reach());
    EXPECT_GE(seconds_since(start), 1.3);
    (void)take_logs();

    /* It answers again, and within what is enough. */
    reopen({{"TIMEOUT", "60s"}});
    other.process.kill(SIGCONT);
    unpacked remote(key);
    ASSERT_EQ(remote.status, UCS_OK);
    EXPECT_EQ(byte_at(remote, at), 0x44);
    remote.release();
    reopen({});
}

GAUDI_CHILD(has_no_card)
{
    uct_md_h md = open_md_of_child();
    GAUDI_CHILD_REQUIRE(base::card_table::instance().cards().empty());
    for (const bool reachable : {false, true}) {
        tell_parent("next");
        GAUDI_CHILD_REQUIRE(use_of(from_parent<ipc::wire_key>()) ==
                            (reachable ? UCS_OK : out_of_reach()));
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

TEST_F(keys, of_device_memory_are_unreachable_by_ports_without_a_card)
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

TEST_F(keys, of_freed_memory_do_not_lead_to_what_is_there_next)
{
    exporter_process other;
    uint64_t at = other.allocate(device_page(), 1);
    auto old    = other.key(at, device_page());
    unpacked remote(old);
    ASSERT_EQ(byte_at(remote, at), 1);
    other.deregister(old);
    other.free(at);
    EXPECT_EQ(byte_at(remote, at), -1);
    remote.release();

    /* Until the address comes back, which takes a while: hints go round. */
    for (unsigned round = 2; round < 20; ++round) {
        const uint64_t next = other.allocate(device_page(), round & 0xff);
        const auto key      = other.key(next, device_page());
        EXPECT_EQ(use_of(old), UCS_ERR_CONNECTION_RESET);
        unpacked fresh(key);
        ASSERT_EQ(fresh.status, UCS_OK);
        EXPECT_EQ(byte_at(fresh, next), static_cast<int>(round));
        fresh.release();
        old = key;
        other.deregister(key);
        other.free(next);
    }
}

/* UCP's cache deregisters some time after it was told of the freeing. */
TEST_F(keys, end_when_their_memory_is_freed_which_they_do_not_keep)
{
    exporter_process other;
    const uint64_t at = other.allocate(device_page(), 7);
    const auto key    = other.key(at, device_page());
    unpacked remote(key);
    EXPECT_EQ(byte_at(remote, at), 7);
    other.free(at);
    EXPECT_EQ(remote->hold(), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(other.ask_number("blocks"), 0u);
    EXPECT_EQ(other.ask_number("keys"), 0u);
    other.deregister(key);

    const uint64_t next = other.allocate(device_page(), 9);
    const auto unused   = other.key(next, device_page());
    other.free(next);
    EXPECT_EQ(other.ask_number("blocks"), 0u);
    EXPECT_TRUE(other.invalidate(unused));
}

TEST_F(keys, of_freed_memory_that_is_in_use_keep_its_addresses)
{
    GAUDI_NEEDS(own_dmabufs);
    for (const bool in_use : {true, false}) {
        exporter_process other;
        const uint64_t rest = other.allocate(device_page() / 2, 6);
        const uint64_t at   = other.allocate(device_page() / 2, 7);
        const auto key      = other.key(at, device_page() / 2);
        unpacked remote(key);
        ASSERT_EQ(remote->hold(), UCS_OK);
        if (!in_use) {
            remote->release();
        }
        other.free(at);
        const uint64_t next = other.allocate(device_page() / 2, 8);
        EXPECT_EQ(other.ask_number("blocks"), in_use ? 2u : 1u);
        if (in_use) {
            remote->release();
        }
        other.deregister(key);
        other.free(next);
        other.free(rest);
    }
}

TEST_F(keys, that_come_and_go_leave_nothing_behind)
{
    constexpr unsigned rounds = 200;
    exporter_process other;
    unsigned fds      = 0;
    unsigned mappings = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        /* Every 16th has a block of its own. */
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
        if (round == rounds / 2) {
            fds      = count_open_fds();
            mappings = count_mappings();
        }
    }
    EXPECT_LE(count_open_fds(), fds + 16);
    EXPECT_LE(count_mappings(), mappings + 32);
    EXPECT_EQ(other.ask_number("keys"), 0u);
    EXPECT_LE(other.ask_number("blocks"), 12u);
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
