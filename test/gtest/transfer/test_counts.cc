/* SPDX-License-Identifier: BSD-3-Clause */
/* Which card is said to have copied what, on a box of two. */
#include "gtest/transfer/fixture.h"

#include "common/vfs.h"

#include <thread>

namespace gaudi::test {

namespace {

constexpr size_t size = 100000;
constexpr char root[] = "/test_counts";

/* An engine whose interface UCX shows. */
class counted_transfers : public transfers {
protected:
    void SetUp() override
    {
        transfers::SetUp();
        ASSERT_FALSE(HasFatalFailure());
        ASSERT_EQ(UCS_OK,
                  ucs_vfs_obj_add_dir(nullptr, &interface, "%s", root + 1));
        engine->show_in(&interface.super);
    }
    void TearDown() override
    {
        ucs_vfs_obj_remove(&interface);
        transfers::TearDown();
    }

    static std::optional<uint64_t> bytes(size_t index, const char *direction)
    {
        return vfs_number(root + ('/' + card(index).name()) + '/' + direction +
                          "/bytes");
    }

    void copy(const base::side &dst, const base::side &src)
    {
        counted_completion done;
        ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, dst, src, size, &done));
        wait_for(done);
        EXPECT_EQ(UCS_OK, done.status);
    }

    uct_base_iface_t interface {};
};

TEST_F(counted_transfers, show_a_card_once_it_is_used)
{
    guarded_buffer host(size);
    const device_buffer second(card(1), size);
    EXPECT_EQ(uint64_t{0}, bytes(0, "host_to_device"));
    EXPECT_EQ(std::nullopt, bytes(1, "host_to_device"));
    copy(second.data(), host.data());
    EXPECT_EQ(size, bytes(1, "host_to_device"));
    EXPECT_EQ(uint64_t{0}, bytes(0, "host_to_device"));
    engine->add_files(); /* as UCX may have it do at any time */
    EXPECT_EQ(size, bytes(1, "host_to_device"));
}

TEST_F(counted_transfers, are_the_reading_cards)
{
    const device_buffer first(card(0), size);
    const device_buffer second(card(1), size);
    copy(second.data(), first.data());
    EXPECT_EQ(size, bytes(1, "card_to_card_in"));
    EXPECT_EQ(uint64_t{0}, bytes(0, "card_to_card_out"))
        << "card 1 did it, and nothing is counted twice";
    copy(first.data(), second.data());
    EXPECT_EQ(size, bytes(0, "card_to_card_in"));
    EXPECT_EQ(uint64_t{0}, bytes(0, "on_card"));
}

TEST_F(counted_transfers, may_be_read_meanwhile)
{
    guarded_buffer host(size);
    const device_buffer device(card(0), size);
    std::atomic<bool> over{false};
    uint64_t last = 0;
    bool rises    = true;
    std::thread reader([&] {
        while (!over) {
            engine->add_files();
            const uint64_t now = bytes(0, "host_to_device").value_or(0);
            rises &= (now >= last);
            last = now;
        }
    });
    for (int i = 0; i < 100; ++i) {
        copy(device.data(), host.data());
    }
    over = true;
    reader.join();
    EXPECT_TRUE(rises);
    EXPECT_EQ(100 * size, bytes(0, "host_to_device"));
}

} // namespace

} // namespace gaudi::test
