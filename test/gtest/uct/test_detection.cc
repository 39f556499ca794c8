/* Which memory is Gaudi memory, by query and through UCX's cache. */
#include "gtest/uct/fixture.h"

#include "common/child.h"

#include <csignal>

extern "C" {
#include <config.h>
#include <ucs/memory/memory_type.h>
#include <ucs/memory/memtype_cache.h>
#include <ucs/sys/topo/base/topo.h>
}

namespace gaudi::test {

namespace {

using detection = uct;

} // namespace

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
