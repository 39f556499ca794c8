/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys that nobody should believe. */
#include "common/ucx_logs.h"
#include "gtest/ipc/exporter.h"

namespace gaudi::test {

namespace {

using key_format = keys_test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(key_format, other_nodes_users_and_versions_are_unreachable)
{
    exporter_process other;
    const auto good = other.key(other.allocate(mebi, 1), mebi);
    const auto with = [&](auto &&change) {
        ipc::wire_key key = good;
        change(key);
        return unpacked(key).status;
    };
    EXPECT_EQ(with([](auto &key) { key.machine.box ^= 1; }),
              UCS_ERR_UNREACHABLE);
    EXPECT_EQ(with([](auto &key) { key.machine.pid_namespace ^= 1; }),
              UCS_ERR_UNREACHABLE);
    EXPECT_EQ(with([](auto &key) { key.machine.uid ^= 1; }),
              UCS_ERR_UNREACHABLE);
    EXPECT_EQ(with([](auto &key) { key.machine.version += 1; }),
              UCS_ERR_UNREACHABLE);
    EXPECT_EQ(with([](auto &key) { key.machine.user_namespace ^= 1; }),
              UCS_ERR_UNREACHABLE);
    EXPECT_EQ(with([](auto &) {}), UCS_OK);
}

TEST_F(key_format, processes_and_slots_that_are_not_fail)
{
    exporter_process other;
    const auto good = other.key(other.allocate(mebi, 1), mebi);
    const auto with = [&](auto &&change) {
        ipc::wire_key key = good;
        change(key);
        return use_of(key);
    };
    const auto gone = [&](auto &&change) {
        ipc::wire_key key = good;
        change(key);
        unpacked remote(key);
        return (remote.status == UCS_OK) &&
               (remote->failure() == UCS_ERR_ENDPOINT_TIMEOUT) &&
               (remote->hold() == UCS_ERR_ENDPOINT_TIMEOUT);
    };
    for (const bool known : {false, true}) { /* the process, to the cache */
        SCOPED_TRACE(known);
        if (!known) {
            EXPECT_EQ(with([](auto &key) { key.page.name += 1; }),
                      out_of_reach());
            EXPECT_EQ(with([](auto &key) { key.page.secret += 1; }),
                      out_of_reach());
        }
        EXPECT_EQ(with([](auto &key) { key.process.nonce ^= 2; }),
                  out_of_reach());
        EXPECT_TRUE(gone([](auto &key) { key.process.start_time += 1; }));
        EXPECT_TRUE(gone([](auto &key) { key.process.pid = 1; }));
        EXPECT_EQ(with([](auto &key) { key.stamp += 1; }),
                  UCS_ERR_CONNECTION_RESET);
        EXPECT_EQ(with([](auto &key) { key.cell += 1; }),
                  UCS_ERR_CONNECTION_RESET);
        /* None of it spoils the right one. */
        EXPECT_EQ(with([](auto &) {}), UCS_OK);
    }
    EXPECT_THAT(take_logs(),
                ::testing::Each(HasSubstr("by this remote key will fail")));
}

/* UCP 1.13 releases what it finds there. */
TEST_F(key_format, what_is_refused_leaves_no_key)
{
    exporter_process other;
    ipc::wire_key key = other.key(other.allocate(mebi, 1), mebi);
    for (const ucs_status_t expected :
         {UCS_ERR_UNREACHABLE, UCS_ERR_INVALID_PARAM}) {
        key.machine.box ^= 1; /* elsewhere, and here again */
        key.stamp = (expected == UCS_ERR_UNREACHABLE) ? 1 : 0;
        ipc::seal_key(key);
        uct_rkey_bundle_t unpacked{0x5a5a5a58, &key, nullptr};
        EXPECT_EQ(uct_rkey_unpack(&ipc::component(), &key, &unpacked),
                  expected);
        EXPECT_EQ(unpacked.rkey, 0u);
        EXPECT_EQ(unpacked.handle, nullptr);
        EXPECT_EQ(uct_rkey_release(&ipc::component(), &unpacked), UCS_OK);
    }
    EXPECT_THAT(take_logs(), ElementsAre(HasSubstr("names no cell")));
}

/* But for the version, which says whether there is a checksum. */
TEST_F(key_format, every_single_bit_flip_is_noticed)
{
    exporter_process other;
    const auto good = other.key(other.allocate(mebi, 1), mebi);
    for (size_t bit = 0; bit < sizeof(good) * 8; ++bit) {
        ipc::wire_key key = good;
        reinterpret_cast<unsigned char *>(&key)[bit / 8] ^=
            static_cast<unsigned char>(1u << (bit % 8));
        const bool of_version = (key.machine.version != good.machine.version);
        const unpacked remote(static_cast<const void *>(&key));
        EXPECT_EQ(remote.status,
                  of_version ? UCS_ERR_UNREACHABLE : UCS_ERR_INVALID_PARAM)
            << bit;
        EXPECT_EQ(take_logs().size(), of_version ? 0u : 1u);
    }
    EXPECT_EQ(processes(), 0u);
}

} // namespace

} // namespace gaudi::test
