/* Allocation and registration. */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <climits>
#include <cstring>

#include <sys/mman.h>

extern "C" {
#include <ucs/memory/memory_type.h>
}

namespace gaudi::test {

namespace {

using memory_domain = uct;

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
    uint64_t freed;
    {
        device_buffer buffer(md, 1);
        freed = buffer.remote();
    }
    device_buffer next(md, 1);
    EXPECT_NE(freed, next.remote());
}

TEST_F(memory_domain, the_first_use_maps_and_the_cache_keeps_it)
{
    guarded_buffer host(123456);
    device_buffer device(md, host.size());
    const uint64_t before = engine_hooks::counters().mappings;
    {
        registration memh(md, host.data(), host.size());
        EXPECT_EQ(before, engine_hooks::counters().mappings);
        for (unsigned use = 0; use < 2; ++use) {
            counted_completion done;
            tl->start_put(host.data(), host.size(), device.remote(), &done);
            tl->flush();
            EXPECT_EQ(before + 1, engine_hooks::counters().mappings);
        }
    }
    EXPECT_EQ(before + 1, engine_hooks::counters().mappings);
    drop_idle_registrations(md);
    EXPECT_TRUE(eventually(
        [&] { return engine_hooks::counters().mappings == before; }));
}

TEST_F(memory_domain, device_memory_can_be_registered_as_often_as_one_likes)
{
    device_buffer device(md, 1 << 20);
    const uint64_t before = engine_hooks::counters().mappings;
    registration whole(md, device.address, 1 << 20);
    registration part(md, device.data() + 77, 1);
    EXPECT_EQ(before, engine_hooks::counters().mappings);
}

TEST_F(memory_domain, a_key_packs_into_nothing)
{
    device_buffer device(md, 1);
    char canary = 0x55;
    EXPECT_EQ(UCS_OK, uct_md_mkey_pack(md, device.memh, &canary));
    EXPECT_EQ(0x55, canary);

    uct_rkey_bundle_t key;
    uct_component_h component = find_component();
    EXPECT_EQ(UCS_OK, uct_rkey_unpack(component, &canary, &key));
    EXPECT_EQ(UCS_OK, uct_rkey_release(component, &key));
}

/* Caches of registrations let go of memory a little after it was freed. */
TEST_F(memory_domain, freed_memory_goes_with_its_last_registration)
{
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
    uct_allocated_memory_t memory;
    /* The second line is UCT's own. */
    EXPECT_EQ(UCS_ERR_NO_MEMORY, allocate_memory(md, 97ul << 30, memory));
    EXPECT_THAT(take_logs(),
                ::testing::ElementsAre(
                    "gaudi0: cannot allocate 104152956928 bytes of device "
                    "memory: Cannot allocate memory",
                    ::testing::HasSubstr("using md gaudi_copy")));
    EXPECT_EQ(0u, engine_hooks::counters().allocations);

    device_buffer whole_card(md, device_bytes());
    EXPECT_EQ(UCS_ERR_NO_MEMORY, allocate_memory(md, 1, memory));
    EXPECT_THAT(take_logs(),
                ::testing::Contains("gaudi0: cannot allocate 1 bytes of device "
                                    "memory: Cannot allocate memory"));
    EXPECT_EQ(UCS_ERR_NO_MEMORY,
              allocate_memory(md, 1, memory, UCT_MD_MEM_FLAG_HIDE_ERRORS));
    EXPECT_THAT(take_logs(), ::testing::Not(::testing::Contains(
                                 ::testing::HasSubstr("gaudi0"))));
}

TEST_F(memory_domain, a_fixed_address_is_refused)
{
    uct_allocated_memory_t memory;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED,
              allocate_memory(md, 4096, memory, UCT_MD_MEM_FLAG_FIXED,
                              reinterpret_cast<void *>(0x1001001800000000)));
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

TEST_F(memory_domain, read_only_memory_is_registered_and_staged)
{
    constexpr size_t size = 8192;
    void *page            = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, page);
    fill_pattern(page, size, 1);
    ASSERT_EQ(0, mprotect(page, size, PROT_READ));
    {
        device_buffer device(md, size);
        registration memh(md, page, size);
        counted_completion done;
        tl->start_put(page, size, device.remote(), &done);
        tl->flush();
        EXPECT_TRUE(tl->holds(device.remote(), size, 1));
    }
    munmap(page, size);
}

TEST_F(memory_domain, device_memory_outside_allocations_cannot_be_registered)
{
    device_buffer device(md, 4096);
    uct_mem_h memh;
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              register_memory(md, device.data() + 1, 4096, memh));
    char expected[200];
    std::snprintf(expected, sizeof(expected),
                  "gaudi: cannot register 4096 bytes at %p: they are in no "
                  "allocation of device memory",
                  static_cast<void *>(device.data() + 1));
    expect_log(expected);
}

TEST_F(memory_domain, cards_are_closed_with_the_last_domain_and_open_again)
{
    tl.reset();
    uct_md_h second;
    ASSERT_EQ(UCS_OK, open_md(second));
    uct_md_close(md);
    EXPECT_EQ(0u, engine_hooks::counters().allocations);
    uct_md_close(second);
    ASSERT_EQ(UCS_OK, open_md(md));
    tl = std::make_unique<transport>(md);
    device_buffer device(md, 1);
}

} // namespace gaudi::test
