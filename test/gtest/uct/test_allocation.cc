/* How the memory domain makes do with the driver's large pages. */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <cstring>
#include <random>

namespace gaudi::test {

namespace {

class allocation : public uct {
protected:
    const uint64_t page = device_page();
};

} // namespace

TEST_F(allocation, a_thousand_small_ones_share_a_page)
{
    std::vector<std::unique_ptr<device_buffer>> buffers;
    for (unsigned i = 0; i < 1000; ++i) {
        buffers.push_back(std::make_unique<device_buffer>(md, 4096));
    }
    EXPECT_EQ(1u, engine_hooks::counters().allocations);
    buffers.clear();
    EXPECT_EQ(0u, engine_hooks::counters().allocations);
}

TEST_F(allocation, two_do_not_overlap_and_are_returned)
{
    const unsigned fds = count_open_fds();
    {
        device_buffer first(md, 4097);
        device_buffer second(md, 4097);
        const auto distance = std::max(first.remote(), second.remote()) -
                              std::min(first.remote(), second.remote());
        EXPECT_GE(distance, 8192u) << "host pages are not shared";
        EXPECT_EQ(0u, first.remote() % 4096);
        EXPECT_EQ(0u, second.remote() % 4096);
    }
    EXPECT_EQ(0u, engine_hooks::counters().allocations);
    EXPECT_EQ(fds, count_open_fds());
}

TEST_F(allocation, a_small_one_takes_the_rest_of_a_large_ones_pages)
{
    device_buffer large(md, page + 1);
    device_buffer small(md, page - 4096);
    EXPECT_EQ(1u, engine_hooks::counters().allocations);
    device_buffer more(md, 1);
    EXPECT_EQ(2u, engine_hooks::counters().allocations);
}

TEST_F(allocation, a_page_goes_back_when_its_last_part_goes)
{
    auto first  = std::make_unique<device_buffer>(md, 1);
    auto second = std::make_unique<device_buffer>(md, 1);
    first.reset();
    EXPECT_EQ(1u, engine_hooks::counters().allocations);
    second.reset();
    EXPECT_EQ(0u, engine_hooks::counters().allocations);
}

TEST_F(allocation, query_tells_each_ones_own_range)
{
    device_buffer first(md, 100);
    device_buffer second(md, 5000);
    for (const auto &[buffer, size] :
         {std::pair(&first, 100ul), std::pair(&second, 5000ul)}) {
        const auto attr = query_memory(md, buffer->data() + size - 1, 1);
        EXPECT_EQ(buffer->address, attr.base_address);
        EXPECT_EQ(size, attr.alloc_length);
    }
}

TEST_F(allocation, exhaustion_by_small_ones_is_no_memory_and_loses_nothing)
{
    /* All but two pages. */
    device_buffer most(md, device_bytes() - 2 * page);
    auto first  = std::make_unique<device_buffer>(md, page - 4096);
    auto second = std::make_unique<device_buffer>(md, page - 4096);
    uct_allocated_memory_t memory;
    EXPECT_EQ(UCS_ERR_NO_MEMORY, allocate_memory(md, 4097, memory));
    EXPECT_THAT(take_logs(),
                ::testing::Contains("gaudi0: cannot allocate 4097 bytes of "
                                    "device memory: Cannot allocate memory"));
    device_buffer still(md, 4096);
    first.reset();
    second.reset();
    device_buffer again(md, page);
}

#if UCT_API >= UCT_VERSION(1, 19) /* it names a device from there on */
TEST_F(allocation, is_on_the_device_that_is_named)
{
    const device_buffer known(md, 4096);
    const auto memory_attr    = query_memory(md, known.data(), 4096);
    uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params{};
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                        UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                        UCT_MEM_ALLOC_PARAM_FIELD_SYS_DEVICE;
    params.mem_type   = memory_attr.mem_type;
    params.sys_device = memory_attr.sys_dev;
    params.mds        = {&md, 1};
    uct_allocated_memory_t memory;
    ASSERT_EQ(UCS_OK, uct_mem_alloc(4096, &method, 1, &params, &memory));
    EXPECT_EQ(UCS_OK, uct_mem_free(&memory));

    ASSERT_EQ(UCS_OK, ucs_topo_find_device_by_bdf_name("0000:ff:1f.7",
                                                       &params.sys_device));
    ASSERT_NE(UCS_SYS_DEVICE_ID_UNKNOWN, params.sys_device); /* no card */
    EXPECT_EQ(UCS_ERR_NO_DEVICE,
              uct_mem_alloc(4096, &method, 1, &params, &memory));
    EXPECT_THAT(take_logs(), ::testing::Contains(::testing::HasSubstr(
                                 "cannot allocate on system device")));
}
#endif

TEST_F(allocation, that_touches_another_is_known_from_its_first_byte)
{
    device_buffer first(md, 1 << 20);
    device_buffer second(md, 1 << 20);
    ASSERT_EQ(first.remote(1 << 20), second.remote()) << "side by side";
    char byte = 1;
    ASSERT_EQ(UCS_OK, tl->put_short(&byte, 1, second.remote() - 1));
    EXPECT_EQ(8, tl->put_bcopy("7777777", 8, second.remote()));
    tl->flush();
}

TEST_F(allocation, of_any_sizes_in_any_order_keep_their_bytes)
{
    struct entry {
        std::unique_ptr<device_buffer> buffer;
        size_t size;
        unsigned seed;
    };
    std::mt19937 random(1);
    std::vector<entry> live;
    std::vector<char> bytes;
    const auto below = [&random](size_t limit) {
        return std::uniform_int_distribution<size_t>(0, limit - 1)(random);
    };
    const auto check = [&](const entry &checked) {
        const size_t seen = std::min<size_t>(checked.size, 70000);
        EXPECT_TRUE(tl->holds(checked.buffer->remote(checked.size - seen), seen,
                              checked.seed));
    };
    for (unsigned step = 0; step < 600; ++step) {
        if ((below(5) < 3) || live.empty()) {
            const size_t size =
                (below(20) == 0) ? 1 + below(2 * page) : 1 + below(100000);
            live.push_back(
                {std::make_unique<device_buffer>(md, size), size, step});
            const size_t written = std::min<size_t>(size, 70000);
            bytes.resize(written);
            fill_pattern(bytes.data(), written, step);
            ASSERT_EQ(UCS_OK, tl->put_short(
                                  bytes.data(), written,
                                  live.back().buffer->remote(size - written)));
        } else {
            const size_t which = below(live.size());
            check(live[which]);
            live.erase(live.begin() + static_cast<long>(which));
        }
    }
    for (const entry &left : live) {
        check(left);
    }
    live.clear();
    EXPECT_EQ(0u, engine_hooks::counters().allocations);
}

} // namespace gaudi::test
