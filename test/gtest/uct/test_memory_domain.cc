/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocation and registration, and what is known of memory. */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <climits>
#include <csignal>
#include <cstring>
#include <random>

#include <sys/mman.h>

extern "C" {
#include <config.h>
#include <ucs/memory/memory_type.h>
#include <ucs/memory/memtype_cache.h>
#include <ucs/sys/topo/base/topo.h>
}

namespace gaudi::test {

namespace {

using memory_domain = uct;
using detection     = uct;

class allocation : public uct {
protected:
    const uint64_t page = device_page();
};

} // namespace

TEST_F(memory_domain, says_what_it_can_do)
{
    uct_md_attr_t attr;
    ASSERT_EQ(UCS_OK, uct_md_query(md, &attr));
    const uint64_t gaudi = UCS_BIT(gaudi_type());
    EXPECT_STREQ("gaudi_copy", attr.component_name);
    EXPECT_STREQ("gaudi", ucs_memory_type_names[gaudi_type()]);
    EXPECT_EQ(gaudi, attr.cap.alloc_mem_types);
    EXPECT_EQ(gaudi | UCS_BIT(UCS_MEMORY_TYPE_HOST), attr.cap.access_mem_types);
    EXPECT_EQ(gaudi, attr.cap.detect_mem_types);
    EXPECT_EQ(gaudi | UCS_BIT(UCS_MEMORY_TYPE_HOST), attr.cap.reg_mem_types);
    EXPECT_TRUE(attr.cap.flags & UCT_MD_FLAG_ALLOC);
    EXPECT_TRUE(attr.cap.flags & UCT_MD_FLAG_REG);
    EXPECT_FALSE(attr.cap.flags & UCT_MD_FLAG_NEED_RKEY);
    EXPECT_EQ(0u, attr.rkey_packed_size);
}

#if UCT_API >= UCT_VERSION(1, 21) /* where UCX has a module for the same */
TEST_F(memory_domain, is_that_of_the_first_component)
{
    uct_component_h *components;
    unsigned count;
    ASSERT_EQ(UCS_OK, uct_query_components(&components, &count));
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
    EXPECT_EQ(UCS_OK, uct_component_query(components[0], &attr));
    EXPECT_STREQ("gaudi_copy", attr.name);
    uct_release_component_list(components);
}
#endif

TEST_F(memory_domain, a_freed_address_does_not_come_back_at_once)
{
    GAUDI_NEEDS(own_pool);
    uint64_t freed;
    {
        device_buffer buffer(md, 1);
        freed = buffer.remote();
    }
    device_buffer next(md, 1);
    EXPECT_NE(freed, next.remote());
}

/* Caches of registrations let go of memory a little after it was freed. */
TEST_F(memory_domain, freed_memory_goes_with_its_last_registration)
{
    GAUDI_NEEDS(own_pool);
    const size_t whole_card = device_bytes();
    uct_allocated_memory_t memory;
    uct_mem_h first;
    uct_mem_h last;
    ASSERT_EQ(UCS_OK, allocate_memory(md, whole_card, memory));
    char *data = static_cast<char *>(memory.address);
    ASSERT_EQ(UCS_OK, register_memory(md, data + 10, 100, first));
    ASSERT_EQ(UCS_OK, register_memory(md, data, 4096, last));
    EXPECT_EQ(UCS_OK, uct_mem_free(&memory));

    char byte = 3;
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              tl->put_short(&byte, 1, reinterpret_cast<uintptr_t>(data)))
        << "no address leads to it";
    EXPECT_FALSE(take_logs().empty());

    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, first));
    EXPECT_EQ(UCS_ERR_NO_MEMORY,
              allocate_memory(md, 1, memory, UCT_MD_MEM_FLAG_HIDE_ERRORS));
    (void)take_logs();
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, last));
    ASSERT_EQ(UCS_OK, allocate_memory(md, whole_card, memory));
    EXPECT_EQ(UCS_OK, uct_mem_free(&memory));
}

TEST_F(memory_domain, exhaustion_is_no_memory_and_loses_nothing)
{
    GAUDI_NEEDS(own_pool);
    uct_allocated_memory_t memory;
    /* The second line is UCT's own. */
    EXPECT_EQ(UCS_ERR_NO_MEMORY, allocate_memory(md, 97ul << 30, memory));
    EXPECT_THAT(take_logs(),
                ::testing::ElementsAre(
                    ::testing::HasSubstr("cannot allocate 104152956928 bytes"),
                    ::testing::HasSubstr("using md gaudi_copy")));
    EXPECT_EQ(0u, engine_hooks::counters().allocations);

    device_buffer whole_card(md, device_bytes());
    EXPECT_EQ(UCS_ERR_NO_MEMORY, allocate_memory(md, 1, memory));
    EXPECT_THAT(take_logs(), ::testing::Contains(::testing::HasSubstr(
                                 "cannot allocate 1 bytes")));
    EXPECT_EQ(UCS_ERR_NO_MEMORY,
              allocate_memory(md, 1, memory, UCT_MD_MEM_FLAG_HIDE_ERRORS));
    EXPECT_THAT(take_logs(), ::testing::Not(::testing::Contains(
                                 ::testing::HasSubstr("gaudi0"))));
}

TEST_F(memory_domain, host_memory_that_is_not_all_there_can_be_registered)
{
    /* UCP registers whatever a program maps, and fails if one domain does. */
    guarded_buffer host(4096);
    device_buffer device(md, 4096);
    const uint64_t before = engine_hooks::counters().mappings;
    fill_pattern(host.data(), 4096, 1);
    {
        registration memh(md, host.data(), 8192);
        tl->put(host.data(), 4096, device.remote());
        EXPECT_EQ(before, engine_hooks::counters().mappings) << "it is staged";
    }
    EXPECT_TRUE(tl->holds(device.remote(), 4096, 1));
}

/* --- how it makes do with the driver's large pages -------------------------
 */

TEST_F(allocation, a_thousand_small_ones_share_a_page)
{
    GAUDI_NEEDS(own_pool);
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

TEST_F(allocation, exhaustion_by_small_ones_is_no_memory_and_loses_nothing)
{
    GAUDI_NEEDS(own_pool);
    /* All but two pages. */
    device_buffer most(md, device_bytes() - 2 * page);
    auto first  = std::make_unique<device_buffer>(md, page - 4096);
    auto second = std::make_unique<device_buffer>(md, page - 4096);
    uct_allocated_memory_t memory;
    EXPECT_EQ(UCS_ERR_NO_MEMORY, allocate_memory(md, 4097, memory));
    EXPECT_THAT(take_logs(), ::testing::Contains(::testing::HasSubstr(
                                 "cannot allocate 4097 bytes")));
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
    GAUDI_NEEDS(own_pool);
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

/* --- which memory is Gaudi memory, by query and through UCX's cache --------
 */

TEST_F(detection, an_interior_address_gives_the_whole_allocation)
{
    device_buffer device(md, 1000);
    const auto attr = query_memory(md, device.data() + 999, 1);
    EXPECT_STREQ("gaudi", ucs_memory_type_names[attr.mem_type]);
    EXPECT_EQ(device.address, attr.base_address);
    EXPECT_EQ(1000u, attr.alloc_length);
    EXPECT_STREQ("gaudi0", ucs_topo_sys_device_get_name(attr.sys_dev));

    ucs_memory_type_t type;
    EXPECT_EQ(UCS_OK,
              uct_md_detect_memory_type(md, device.data() + 5, 1, &type));
    EXPECT_EQ(attr.mem_type, type);
}

TEST_F(detection, host_memory_is_not_ours)
{
    char byte = 0;
    uct_md_mem_attr_t attr{};
    ucs_memory_type_t type;
    attr.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE;
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, uct_md_mem_query(md, &byte, 1, &attr));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              uct_md_detect_memory_type(md, &byte, 1, &type));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, uct_md_mem_query(md, nullptr, 0, &attr));
}

TEST_F(detection, tags_in_a_pointer_do_not_make_it_device_memory)
{
    char byte           = 0;
    const auto untagged = reinterpret_cast<uintptr_t>(&byte);
    /* Bits 57 to 62, as linear address masking has it; and one of one's own. */
    std::vector<uint64_t> tags = {uint64_t{1} << 56};
    for (uint64_t tag = 1; tag < 64; ++tag) {
        tags.push_back(tag << 57);
    }
    for (const uint64_t tag : tags) {
        void *tagged = reinterpret_cast<void *>(untagged | tag);
        uct_md_mem_attr_t attr{};
        ucs_memory_type_t type;
        attr.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE;
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, uct_md_mem_query(md, tagged, 1, &attr))
            << tagged;
        EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                  uct_md_detect_memory_type(md, tagged, 1, &type))
            << tagged;
    }
}

TEST_F(detection, a_device_address_is_never_called_host_memory)
{
    /* Not allocated, but the CPU must keep off all the same. */
    const auto attr =
        query_memory(md, reinterpret_cast<void *>(0x1001fff000000000), 1);
    EXPECT_STREQ("gaudi", ucs_memory_type_names[attr.mem_type]);
    EXPECT_EQ(UCS_SYS_DEVICE_ID_UNKNOWN, attr.sys_dev);
}

TEST_F(detection, the_cache_learns_of_allocations_and_forgets_freed_ones)
{
    GAUDI_NEEDS(own_pool);
    const void *address;
    ucs_memory_info_t info;
    char host = 0;
    {
        /* Made before the cache exists, which it does after a look-up. */
        device_buffer early(md, 1 << 20);
        EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_memtype_cache_lookup(&host, 1, &info));
        EXPECT_EQ(UCS_OK,
                  ucs_memtype_cache_lookup(early.data() + 5, 100, &info));

        device_buffer late(md, 1 << 20);
        address = late.data() + 5;
        EXPECT_EQ(UCS_OK, ucs_memtype_cache_lookup(address, 100, &info));
        EXPECT_EQ(UCS_MEMORY_TYPE_UNKNOWN, info.type) << "ask mem_query once";
        const auto attr = query_memory(md, address, 100);
        EXPECT_EQ(UCS_OK, ucs_memtype_cache_lookup(address, 100, &info));
        EXPECT_EQ(attr.mem_type, info.type);
        EXPECT_EQ(attr.sys_dev, info.sys_dev);
    }
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_memtype_cache_lookup(address, 100, &info));
}

TEST_F(detection, reading_device_memory_with_the_cpu_faults)
{
    EXPECT_EQ(SIGSEGV, run_child("reads_device_memory").signal);
}

GAUDI_CHILD(reads_device_memory)
{
    const opened_domain md;
    device_buffer device(md, 4096);
    std::signal(SIGSEGV, SIG_DFL);
    return *static_cast<volatile char *>(device.address);
}

} // namespace gaudi::test
