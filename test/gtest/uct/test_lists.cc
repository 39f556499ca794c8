/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of zero copies by UCX's own calls, from 1.22 (put) and 1.23 (get) on.
 * What fails of lists is tested by gtest/transfer, with every release. */
#include "gtest/uct/fixture.h"

#ifdef UCT_IFACE_FLAG_V2_PUT_SGL_ZCOPY

#include <cstring>
#include <vector>

namespace gaudi::test {

namespace {

constexpr size_t block = 5000;
constexpr size_t count = 100;
constexpr size_t total = count * block;

/* The parameter: whether they are put. */
class lists : public uct, public ::testing::WithParamInterface<bool> {
protected:
    lists()
    {
        for (size_t at = 0; at < total; at += block) {
            buffers.push_back(host.data() + at);
            remotes.push_back(device.remote(at));
        }
    }

    /* @param strides  Of elements that repeat; nullptr: none do. */
    ucs_status_t start(const size_t *strides = nullptr)
    {
        const auto call = [&](auto operation) {
            return operation(tl->ep, buffers.data(), lengths.data(), nullptr,
                             remotes.data(), keys.data(), strides, strides,
                             count, &done);
        };
#ifdef UCT_IFACE_FLAG_V2_GET_SGL_ZCOPY
        if (!GetParam()) {
            return call(uct_ep_get_sgl_zcopy);
        }
#endif
        return call(uct_ep_put_sgl_zcopy);
    }

    guarded_buffer host{total};
    device_buffer device{md, total};
    std::vector<void *> buffers;
    std::vector<uint64_t> remotes;
    const std::vector<size_t> lengths = std::vector<size_t>(count, block);
    const std::vector<uct_rkey_t> keys =
        std::vector<uct_rkey_t>(count, tl->rkey);
    counted_completion done;
};

} // namespace

TEST_P(lists, move_all_their_elements)
{
    fill_pattern(host.data(), total, 1);
    if (!GetParam()) {
        tl->put(host.data(), total, device.remote());
        std::memset(host.data(), 0, total);
    }
    ASSERT_EQ(UCS_INPROGRESS, start());
    EXPECT_EQ(0u, done.calls);
    ASSERT_TRUE(tl->progress_until([this] { return done.calls > 0; }));
    tl->progress_much();
    EXPECT_TRUE(ended_once(done));
    EXPECT_TRUE(has_pattern(host.data(), total, 1));
    EXPECT_TRUE(tl->holds(device.remote(), total, 1));
}

TEST_P(lists, whose_elements_repeat_are_not_supported)
{
    const std::vector<size_t> once(count, 1);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, start(once.data()));
    tl->progress_much();
    EXPECT_EQ(0u, done.calls);
}

INSTANTIATE_TEST_SUITE_P(of, lists,
#ifdef UCT_IFACE_FLAG_V2_GET_SGL_ZCOPY
                         ::testing::Bool(),
#else
                         ::testing::Values(true),
#endif
                         [](const auto &test) {
                             return test.param ? "puts" : "gets";
                         });

} // namespace gaudi::test

#endif
