/* Lists of zero copies by one call, which UCX has from 1.22 (put) and 1.23
 * (get) on: UCP makes none of those here that fail. */
#include "gtest/uct/fixture.h"

#ifdef UCT_IFACE_FLAG_V2_PUT_SGL_ZCOPY

#include <cstring>
#include <sstream>
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
        uct_iface_attr_v2_t attributes{};
        attributes.field_mask = UCT_IFACE_ATTR_FIELD_CAP_FLAGS |
                                UCT_IFACE_ATTR_FIELD_MAX_PUT_SGL_ZCOPY_COUNT;
        EXPECT_EQ(UCS_OK, uct_iface_query_v2(tl->iface, &attributes));
        EXPECT_TRUE(attributes.cap.flags & UCT_IFACE_FLAG_V2_PUT_SGL_ZCOPY);
        longest = attributes.max_put_sgl_zcopy_count;
        for (size_t at = 0; at < total; at += block) {
            append(host.data() + at, device.remote(at));
        }
    }

    void append(void *local, uint64_t remote)
    {
        buffers.push_back(local);
        lengths.push_back(block);
        remotes.push_back(remote);
        keys.push_back(tl->rkey);
    }

    /* @param strides  Of elements that repeat; nullptr: none do. */
    ucs_status_t start(const size_t *strides = nullptr)
    {
        const auto call = [&](auto operation) {
            return operation(tl->ep, buffers.data(), lengths.data(), nullptr,
                             remotes.data(), keys.data(), strides, strides,
                             buffers.size(), &done);
        };
#ifdef UCT_IFACE_FLAG_V2_GET_SGL_ZCOPY
        if (!GetParam()) {
            return call(uct_ep_get_sgl_zcopy);
        }
#endif
        return call(uct_ep_put_sgl_zcopy);
    }

    /* An address that no allocation has, in the place of an element's. */
    void spoil(size_t element)
    {
        remotes[element] = device.remote(1ul << 35);
    }

    void expect_complaint()
    {
        std::ostringstream text;
        text << "gaudi: " << block << " bytes at 0x" << std::hex
             << device.remote(1ul << 35)
             << " are in no allocation of device memory";
        expect_log(text.str());
    }

    void fill()
    {
        fill_pattern(host.data(), total, 1);
        if (!GetParam()) {
            tl->put(host.data(), total, device.remote());
            std::memset(host.data(), 0, total);
        }
    }

    void expect_moved(size_t size)
    {
        if (GetParam()) {
            EXPECT_TRUE(tl->holds(device.remote(), size, 1));
        } else {
            EXPECT_TRUE(has_pattern(host.data(), size, 1));
        }
    }

    size_t longest = 0;
    guarded_buffer host{total};
    device_buffer device{md, total};
    std::vector<void *> buffers;
    std::vector<size_t> lengths;
    std::vector<uint64_t> remotes;
    std::vector<uct_rkey_t> keys;
    counted_completion done;
};

} // namespace

TEST_P(lists, move_all_their_elements)
{
    fill();
    ASSERT_EQ(UCS_INPROGRESS, start());
    EXPECT_EQ(0u, done.calls);
    ASSERT_TRUE(tl->progress_until([this] { return done.calls > 0; }));
    tl->progress_much();
    EXPECT_TRUE(ended_once(done));
    expect_moved(total);
}

TEST_P(lists, end_once_with_the_error_of_one_in_the_middle)
{
    fill();
    spoil(count / 2);
    ASSERT_EQ(UCS_INPROGRESS, start());
    ASSERT_TRUE(tl->progress_until([this] { return done.calls > 0; }));
    tl->progress_much();
    EXPECT_TRUE(ended_once(done, UCS_ERR_INVALID_ADDR));
    expect_complaint();
    expect_moved(count / 2 * block);
}

TEST_P(lists, that_begin_with_an_error_start_nothing)
{
    spoil(0);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, start());
    expect_complaint();
    tl->progress_much();
    EXPECT_EQ(0u, done.calls);
}

TEST_P(lists, longer_than_the_longest_are_refused)
{
    while (buffers.size() <= longest) {
        append(host.data(), device.remote());
    }
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, start());
    tl->progress_much();
    EXPECT_EQ(0u, done.calls);
}

TEST_P(lists, whose_elements_repeat_are_not_supported)
{
    const std::vector<size_t> once(count, 1);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, start(once.data()));
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
