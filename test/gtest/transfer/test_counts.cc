/* SPDX-License-Identifier: BSD-3-Clause */
/* What is said to have moved the bytes of an engine's operations. */
#include "gtest/transfer/fixture.h"

#include "common/vfs.h"

#include <map>
#include <string>
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

    static std::optional<uint64_t> number(const std::string &of)
    {
        return vfs_number(root + ("/copies/" + of));
    }

    /* Bytes and operations of each. */
    static void expect(const std::map<std::string, uint64_t> &operations)
    {
        for (const std::string by : {"card", "ports", "host", "cpu"}) {
            const auto known = operations.find(by);
            const uint64_t count =
                (known != operations.end()) ? known->second : 0;
            EXPECT_EQ(count, number(by + "_operations")) << by;
            EXPECT_EQ(count * size, number(by + "_bytes")) << by;
        }
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

TEST_F(counted_transfers, are_told_apart_by_what_moved_the_bytes)
{
    guarded_buffer host(size);
    const device_buffer near(card(0), size);
    const auto child = child_memory::create(size);
    const auto far   = far_memory(size);
    expect({});
    copy(near.data(), host.data());
    ASSERT_EQ(UCS_OK, engine->copy(host.data(), near.data(), size));
    expect({{"card", 2}});
    copy(far->at(0), near.data());
    copy(host.data(), far->at(0));
    expect({{"card", 2}, {"host", 2}});
    copy(child->at(0), host.data());
    guarded_buffer other(size);
    ASSERT_EQ(UCS_OK, engine->copy(other.data(), host.data(), size));
    expect({{"card", 2}, {"host", 2}, {"cpu", 2}});
    copy(near.data(), child->at(0));
    expect({{"card", 3}, {"host", 2}, {"cpu", 2}});

    engine->add_files(); /* as UCX may have it do at any time */
    far->process->refuses = -EOPNOTSUPP;
    far->process->over    = far->process->made;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, engine->copy(host.data(), far->at(0), size));
    expect_log("cannot reach memory of another process");
    expect({{"card", 3}, {"host", 2}, {"cpu", 2}});
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
            const uint64_t now = number("card_bytes").value_or(0);
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
    EXPECT_EQ(100 * size, number("card_bytes"));
}

} // namespace

} // namespace gaudi::test
