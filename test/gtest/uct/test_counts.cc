/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes and operations by what moved them, as UCX's virtual file system shows
 * them of an interface. */
#include "gtest/uct/peers.h"

#include "common/vfs.h"

#include <map>
#include <utility>

namespace gaudi::test {

namespace {

using count_pair = std::pair<uint64_t, uint64_t>; /* bytes, operations */
using all_counts = std::map<std::string, count_pair>;

/* Without what has moved nothing. */
all_counts counts_of(const transport &tl)
{
    const std::string folder =
        "/uct/worker/" + vfs_name(tl.worker) + "/iface/" + vfs_name(tl.iface);
    all_counts found;
    EXPECT_TRUE(look_into(folder)) << folder;
    for (const char *mover : {"card", "ports", "host", "cpu"}) {
        const std::string at  = folder + "/copies/" + mover;
        const auto bytes      = vfs_number(at + "_bytes");
        const auto operations = vfs_number(at + "_operations");
        EXPECT_TRUE(bytes.has_value() && operations.has_value()) << at;
        if ((bytes.value_or(0) != 0) || (operations.value_or(0) != 0)) {
            found[mover] = {*bytes, *operations};
        }
    }
    return found;
}

class counts : public uct {
protected:
    static constexpr size_t size = 3 << 20;

    guarded_buffer host{size};
};

TEST_F(counts, have_what_cards_and_the_cpu_moved)
{
    const device_buffer device(md, size);
    const registration mapped(md, host.data(), size);
    tl->put(host.data(), 5000, device.remote());
    tl->get(host.data(), 700, device.remote());
    tl->put(device.data() + 4096, 4096, device.remote());
    ASSERT_EQ(UCS_OK, tl->put_short(host.data(), 100, device.remote()));
    EXPECT_EQ((all_counts{{"card", {9896, 4}}}), counts_of(*tl));

    guarded_buffer other(size);
    ASSERT_EQ(UCS_OK, tl->put_short(host.data(), 64,
                                    reinterpret_cast<uintptr_t>(other.data())));
    EXPECT_EQ((all_counts{{"card", {9896, 4}}, {"cpu", {64, 1}}}),
              counts_of(*tl));
}

TEST_F(counts, are_an_interfaces_own)
{
    const device_buffer device(md, size);
    const registration mapped(md, host.data(), size);
    const transport other(md);
    tl->put(host.data(), 64, device.remote());
    EXPECT_EQ((all_counts{{"card", {64, 1}}}), counts_of(*tl));
    EXPECT_EQ(all_counts{}, counts_of(other));
}

TEST_F(counts, go_with_their_interface)
{
    const std::string folder =
        "/uct/worker/" + vfs_name(tl->worker) + "/iface/" + vfs_name(tl->iface);
    EXPECT_TRUE(look_into(folder));
    EXPECT_TRUE(look_into(folder + "/copies"));
    tl.reset();
    EXPECT_FALSE(look_into(folder));
    EXPECT_FALSE(look_into(folder + "/copies"));
}

TEST_F(counts, leave_out_what_fails)
{
    GAUDI_NEEDS(failing_jobs);
    const device_buffer device(md, size);
    const registration mapped(md, host.data(), size);
    tl->put(host.data(), 64, device.remote());
    counted_completion done;
    {
        const wished_faults faults("job=abort");
        tl->start_put(host.data(), 100, device.remote(), &done);
        tl->flush();
    }
    EXPECT_NE(UCS_OK, done.status);
    expect_log("gaudi0: a DMA copy of 100 bytes");
    EXPECT_EQ((all_counts{{"card", {64, 1}}}), counts_of(*tl));
}

/* Of a process that has a card, and copies to and from another one's. */
using counts_of_ipc = beside_a_peer;

TEST_F(counts_of_ipc, tell_the_route)
{
    constexpr size_t bytes = 30000;
    const device_buffer device(copy_md, bytes);
    const registration memh(ipc_md, device.address, bytes);
    const unpacked_key far_device(peer.device.key);
    const unpacked_key far_host(peer.host.key);
    const uct_iov_t iov{device.address, bytes, memh.memh, 0, 1};
    const auto move = [&](auto *operation, uint64_t address, uct_rkey_t key) {
        counted_completion done;
        ASSERT_EQ(UCS_INPROGRESS, operation(ep, &iov, 1, address, key, &done));
        tl->flush();
        EXPECT_TRUE(ended_once(done));
    };
    /* The first ones may go through host memory where there are ports. */
    const auto counted = [&] {
        all_counts found = counts_of(*tl);
        for (const char *route : {"host", "ports"}) {
            found["route"].first += found[route].first;
            found["route"].second += found[route].second;
            found.erase(route);
        }
        return found;
    };
    move(uct_ep_put_zcopy, peer.device.address, far_device.rkey());
    EXPECT_EQ((all_counts{{"route", {bytes, 1}}}), counted());
    move(uct_ep_get_zcopy, peer.device.address, far_device.rkey());
    EXPECT_EQ((all_counts{{"route", {2 * bytes, 2}}}), counted());
    move(uct_ep_get_zcopy, peer.host.address, far_host.rkey());
    EXPECT_EQ((all_counts{{"route", {3 * bytes, 3}}}), counted());
}

} // namespace

} // namespace gaudi::test
