/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of one process, used in another. */
#include "common/needs.h"
#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "util/process.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/fixture.h"

#include <array>
#include <csignal>
#include <cstring>

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

TEST_F(keys, lead_to_memory_of_another_process)
{
    exporter_process other;
    for (const bool of_device : {true, false}) {
        const uint64_t at = of_device ? other.allocate(3 * mebi, 0x5a)
                                      : other.allocate_host(3 * mebi, 0x5a);
        const auto key    = other.key(at, 3 * mebi);
        EXPECT_EQ(key.kind,
                  of_device ? ipc::key_kind::device : ipc::key_kind::host);
        std::array<char, sizeof(key) + 1> bytes{};
        std::memcpy(&bytes[1], &key, sizeof(key)); /* of any alignment */
        unpacked remote(&bytes[1]);
        ASSERT_EQ(remote.status, UCS_OK);
        EXPECT_FALSE(remote->is_own());
        EXPECT_EQ(remote->is_host(), !of_device);
        EXPECT_EQ(remote->process(), key.process);
        EXPECT_EQ(byte_at(remote, at), 0x5a);
        EXPECT_EQ(byte_at(remote, at + 3 * mebi - 1), 0x5a);
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
    unpacked own(key);
    ASSERT_EQ(own.status, UCS_OK);
    EXPECT_TRUE(own->is_own());
    EXPECT_EQ(own->process(), util::process_identity());
    EXPECT_EQ(own->state(), UCS_OK);
    ipc::wire_key other = key;
    other.word += 1;
    EXPECT_EQ(unpacked(other)->state(), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(uct_md_mem_dereg(md, memh), UCS_OK);
    EXPECT_EQ(own->state(), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(unpacked(key)->state(), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(ipc::to_remote_key(UCT_INVALID_RKEY), nullptr);
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

/* Their owner says so, which asks nobody where there are no ports: what peers
 * with ports do about it is tested with interfaces (gtest/uct). */
TEST_F(keys, end_with_their_registration)
{
    exporter_process other{{{{"UCX_GAUDI_IPC_ROUTES", "host"}}, -1}};
    for (const bool of_device : {true, false}) {
        for (const bool invalidates : {true, false}) {
            const uint64_t at = of_device ? other.allocate(mebi, 9)
                                          : other.allocate_host(mebi, 9);
            const auto key    = other.key(at, mebi);
            const auto next   = other.key(at, mebi);
            unpacked remote(key);
            ASSERT_EQ(remote.status, UCS_OK);
            EXPECT_EQ(byte_at(remote, at), 9);
            ASSERT_EQ(remote->hold(), UCS_OK);
            if (invalidates) {
                EXPECT_EQ(other.invalidate(key), UCS_OK);
            } else {
                other.deregister(key);
            }
            remote->release();
            expect_reset(remote, at);
            expect_reset(unpacked(key), at);
            EXPECT_EQ(byte_at(unpacked(next), at), 9);
        }
    }
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
    EXPECT_EQ(count_links(), 0u);
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
