/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes and jobs by card and direction, as UCX's virtual file system shows
 * them of an interface. */
#include "gtest/uct/peers.h"

#include "common/vfs.h"

#include <map>
#include <utility>

namespace gaudi::test {

namespace {

using count_pair = std::pair<uint64_t, uint64_t>; /* bytes, jobs */
using all_counts = std::map<std::string, count_pair>;

/* What is counted of the first card; without directions in which nothing was
 * copied. */
all_counts counts_of(const transport &tl)
{
    const std::string folder =
        "/uct/worker/" + vfs_name(tl.worker) + "/iface/" + vfs_name(tl.iface);
    all_counts found;
    EXPECT_TRUE(look_into(folder)) << folder;
    for (const char *direction : {"host_to_device", "device_to_host", "on_card",
                                  "card_to_card_out", "card_to_card_in"}) {
        const std::string at = folder + "/gaudi0/" + direction;
        const auto bytes     = vfs_number(at + "/bytes");
        const auto jobs      = vfs_number(at + "/jobs");
        EXPECT_TRUE(bytes.has_value() && jobs.has_value()) << at;
        if ((bytes.value_or(0) != 0) || (jobs.value_or(0) != 0)) {
            found[direction] = {*bytes, *jobs};
        }
    }
    return found;
}

class counts : public uct {
protected:
    static constexpr size_t size = 3 << 20;

    guarded_buffer host{size};
};

TEST_F(counts, begin_with_nothing)
{
    EXPECT_EQ(all_counts{}, counts_of(*tl));
}

TEST_F(counts, have_each_direction)
{
    const device_buffer device(md, size);
    const registration mapped(md, host.data(), size);
    tl->put(host.data(), 5000, device.remote());
    EXPECT_EQ((all_counts{{"host_to_device", {5000, 1}}}), counts_of(*tl));

    tl->get(host.data(), 700, device.remote());
    tl->put(device.data() + 4096, 4096, device.remote());
    ASSERT_EQ(UCS_OK, tl->put_short(host.data(), 100, device.remote()));
    EXPECT_EQ((all_counts{{"host_to_device", {5100, 2}},
                          {"device_to_host", {700, 1}},
                          {"on_card", {4096, 1}}}),
              counts_of(*tl));
}

TEST_F(counts, have_the_pieces_of_a_long_copy)
{
    const device_buffer device(md, size);
    const registration mapped(md, host.data(), size);
    tl->put(host.data(), size, device.remote());
    EXPECT_EQ((all_counts{{"host_to_device", {size, 3}}}), counts_of(*tl));
}

TEST_F(counts, are_an_interfaces_own)
{
    const device_buffer device(md, size);
    const registration mapped(md, host.data(), size);
    const transport other(md);
    tl->put(host.data(), 64, device.remote());
    EXPECT_EQ((all_counts{{"host_to_device", {64, 1}}}), counts_of(*tl));
    EXPECT_EQ(all_counts{}, counts_of(other));
}

TEST_F(counts, go_with_their_interface)
{
    const std::string folder =
        "/uct/worker/" + vfs_name(tl->worker) + "/iface/" + vfs_name(tl->iface);
    EXPECT_TRUE(look_into(folder));
    EXPECT_TRUE(look_into(folder + "/gaudi0"));
    tl.reset();
    EXPECT_FALSE(look_into(folder));
    EXPECT_FALSE(look_into(folder + "/gaudi0"));
}

TEST_F(counts, leave_out_what_fails)
{
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
    expect_log("gaudi0: a DMA copy of 100 bytes failed: Input/output error");
    EXPECT_EQ((all_counts{{"host_to_device", {64, 1}}}), counts_of(*tl));
}

/* Of a process that has a card, and copies to and from another one's. */
using counts_of_ipc = beside_a_peer;

TEST_F(counts_of_ipc, tell_other_cards_from_the_host)
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
    move(uct_ep_put_zcopy, peer.device.address, far_device.rkey());
    EXPECT_EQ((all_counts{{"card_to_card_out", {bytes, 1}}}), counts_of(*tl));
    move(uct_ep_get_zcopy, peer.device.address, far_device.rkey());
    EXPECT_EQ((all_counts{{"card_to_card_out", {bytes, 1}},
                          {"card_to_card_in", {bytes, 1}}}),
              counts_of(*tl));
    move(uct_ep_get_zcopy, peer.host.address, far_host.rkey());
    EXPECT_EQ((all_counts{{"card_to_card_out", {bytes, 1}},
                          {"card_to_card_in", {bytes, 1}},
                          {"host_to_device", {bytes, 1}}}),
              counts_of(*tl));
}

} // namespace

} // namespace gaudi::test
