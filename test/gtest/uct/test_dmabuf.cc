/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory as dma-bufs, through ucx_gaudi.h. */
#include "gtest/uct/peers.h"

#include "common/descriptor.h"
#include "common/process_state.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

extern "C" {
#include <config.h>
#include <ucs/memory/memory_type.h>
#include <ucs/memory/memtype_cache.h>
#include <ucs/sys/topo/base/topo.h>
#include <uct/api/v2/uct_v2.h>
}

namespace gaudi::test {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t host_page = 4096;

ucs_status_t export_range(const void *address, size_t length, int &fd,
                          size_t &offset)
{
    return GAUDI_CALL(ucx_gaudi_dmabuf_export)(address, length, &fd, &offset);
}

ucs_status_t import_range(int fd, size_t offset, size_t length, void *&address,
                          const char *card = nullptr)
{
    return GAUDI_CALL(ucx_gaudi_dmabuf_import)(fd, offset, length, card,
                                               &address);
}

ucs_status_t release(void *address)
{
    return GAUDI_CALL(ucx_gaudi_dmabuf_release)(address);
}

ucx_gaudi_mem_attr_t query(const void *address, size_t length,
                           ucs_status_t expected = UCS_OK)
{
    ucx_gaudi_mem_attr_t attr{};
    attr.field_mask = UINT64_MAX;
    EXPECT_EQ(expected,
              GAUDI_CALL(ucx_gaudi_mem_query)(address, length, &attr));
    return attr;
}

uint64_t number(const void *address)
{
    return reinterpret_cast<uintptr_t>(address);
}

/* An export, whose descriptor ends with its scope. */
struct exported_range {
    exported_range(const void *address, size_t length)
    {
        EXPECT_EQ(UCS_OK, export_range(address, length, fd, offset));
    }
    ~exported_range() { close(fd); }
    exported_range(const exported_range &)            = delete;
    exported_range &operator=(const exported_range &) = delete;

    int fd        = -1;
    size_t offset = SIZE_MAX;
};

/* An import that ends with its scope. */
struct imported_range {
    imported_range(int fd, size_t offset, size_t length,
                   const char *card = nullptr)
    {
        EXPECT_EQ(UCS_OK, import_range(fd, offset, length, address, card));
    }
    /* Of this process's own memory. */
    imported_range(const void *own, size_t length)
        : imported_range(exported_range(own, length), length)
    {}
    imported_range(const exported_range &exported, size_t length)
        : imported_range(exported.fd, exported.offset, length)
    {}
    ~imported_range() { EXPECT_EQ(UCS_OK, release(address)); }
    imported_range(const imported_range &)            = delete;
    imported_range &operator=(const imported_range &) = delete;

    void *address = nullptr;
};

bool exports_parts()
{
    const char *preloaded = std::getenv("LD_PRELOAD");
    const char *kernel    = std::getenv("KERNEL_DOUBLE_KERNEL");
    return (preloaded == nullptr) ||
           (std::strstr(preloaded, "kernel_double") == nullptr) ||
           ((kernel != nullptr) && (std::strcmp(kernel, "6.12") == 0));
}

class dmabuf : public uct {
protected:
    const size_t page = device_page();

    void expect_refused_export(const void *address, size_t length,
                               ucs_status_t status = UCS_ERR_INVALID_ADDR)
    {
        SCOPED_TRACE(::testing::Message() << length << " at " << address);
        int fd        = -5;
        size_t offset = 55;
        EXPECT_EQ(status, export_range(address, length, fd, offset));
        EXPECT_EQ(-5, fd);
        EXPECT_EQ(55u, offset);
        EXPECT_THAT(take_logs(), ElementsAre(HasSubstr("cannot export ")));
    }

    void expect_exports_to_leave_nothing(unsigned cycles)
    {
        device_buffer device(md, page);
        const unsigned fds  = count_open_fds();
        const unsigned maps = count_mappings();
        auto *const call    = GAUDI_CALL(ucx_gaudi_dmabuf_export);
        for (unsigned i = 0; i < cycles; ++i) {
            int fd        = -1;
            size_t offset = 0;
            ASSERT_EQ(UCS_OK,
                      call(device.data() + i, 1 + i % 9999, &fd, &offset));
            ASSERT_EQ(0, close(fd));
        }
        EXPECT_EQ(fds, count_open_fds());
        /* Fewer are no leak: some go on Debian 13. */
        EXPECT_GE(maps, count_mappings());
    }

    void expect_refused_import(int fd, size_t offset, size_t length,
                               const std::string &why)
    {
        SCOPED_TRACE(::testing::Message() << length << " at " << offset);
        void *address = this;
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  import_range(fd, offset, length, address));
        EXPECT_EQ(this, address);
        EXPECT_THAT(take_logs(), ElementsAre(HasSubstr(why)));
    }
};

} // namespace

/* --- export --------------------------------------------------------------- */

TEST_F(dmabuf, any_range_of_an_allocation_comes_out_at_the_importer)
{
    GAUDI_NEEDS(imports);
    const size_t size = 2 * page + 12345;
    device_buffer device(md, size);
    const std::pair<size_t, size_t> ranges[] = {{0, size},
                                                {0, 1},
                                                {1, 1},
                                                {4095, 2},
                                                {4097, 8191},
                                                {123457, 654321},
                                                {page - 1, 2},
                                                {page - 4096, 8192},
                                                {page + 777, page},
                                                {size - 1, 1},
                                                {size - 4096, 4096},
                                                {size - 5000, 5000}};
    for (const auto &[position, length] : ranges) {
        SCOPED_TRACE(std::to_string(length) + " at " +
                     std::to_string(position));
        std::vector<char> text(std::min<size_t>(length, 1 << 20));
        fill_pattern(text.data(), text.size(), position);
        tl->put(text.data(), text.size(), device.remote(position));
        const size_t last = length - text.size(); /* of a long range */
        tl->put(text.data(), text.size(), device.remote(position + last));

        std::optional<exported_range> exported;
        exported.emplace(device.data() + position, length);
        EXPECT_EQ(position % host_page, exported->offset % host_page);
        EXPECT_EQ(FD_CLOEXEC, fcntl(exported->fd, F_GETFD));
        const imported_range range(exported->fd, exported->offset, length);
        exported.reset();
        const uint64_t place = number(range.address);
        EXPECT_TRUE(tl->holds(place, text.size(), position));
        EXPECT_TRUE(tl->holds(place + last, text.size(), position));
    }
}

#ifdef UCT_DMABUF_FD_INVALID /* from UCX 1.14 on it asks for them */
struct queried_dmabuf {
    queried_dmabuf(uct_md_h md, const void *address, size_t length)
    {
        uct_md_mem_attr_t attr{};
        attr.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE |
                          UCT_MD_MEM_ATTR_FIELD_DMABUF_FD |
                          UCT_MD_MEM_ATTR_FIELD_DMABUF_OFFSET;
        EXPECT_EQ(UCS_OK, uct_md_mem_query(md, address, length, &attr));
        EXPECT_NE(UCS_MEMORY_TYPE_HOST, attr.mem_type);
        fd     = attr.dmabuf_fd;
        offset = attr.dmabuf_offset;
    }

    int fd; /* to be closed, as UCX does */
    size_t offset;
};

TEST_F(dmabuf, ucx_is_given_any_range_of_an_allocation)
{
    GAUDI_NEEDS(imports);
    const size_t size = page + 12345;
    device_buffer device(md, size);
    std::vector<char> text(size);
    fill_pattern(text.data(), size, 1);
    tl->put(text.data(), size, device.remote());
    const unsigned fds = count_open_fds();
    for (const size_t position : {size_t{0}, size_t{1}, host_page - 1,
                                  host_page, page - 1, size - 100}) {
        constexpr size_t length = 100;
        const queried_dmabuf one(md, device.data() + position, length);
        const queried_dmabuf other(md, device.data() + position, length);
        ASSERT_GE(one.fd, 0);
        ASSERT_GE(other.fd, 0);
        EXPECT_NE(one.fd, other.fd);
        EXPECT_EQ(0, close(other.fd));
        EXPECT_EQ(position % host_page, one.offset % host_page);
        imported_range range(one.fd, one.offset, length);
        EXPECT_EQ(0, close(one.fd));
        char seen[length];
        tl->read_device(seen, number(range.address), length);
        EXPECT_EQ(0, memcmp(seen, text.data() + position, length));
    }
    EXPECT_EQ(fds, count_open_fds());
}

TEST_F(dmabuf, ucx_is_told_that_an_import_has_none)
{
    GAUDI_NEEDS(imports);
    device_buffer device(md, page);
    const imported_range range(device.address, page);
    EXPECT_EQ(UCT_DMABUF_FD_INVALID,
              queried_dmabuf(md, range.address, page).fd);
    EXPECT_THAT(take_logs(), IsEmpty());
}

TEST_F(dmabuf, ucx_knows_who_makes_them)
{
    uct_md_attr_v2_t attr{};
    attr.field_mask =
        UCT_MD_ATTR_FIELD_DMABUF_MEM_TYPES | UCT_MD_ATTR_FIELD_ALLOC_MEM_TYPES;
    ASSERT_EQ(UCS_OK, uct_md_query_v2(md, &attr));
    EXPECT_NE(0u, attr.alloc_mem_types);
    EXPECT_EQ(attr.alloc_mem_types, attr.dmabuf_mem_types);
}
#endif

TEST_F(dmabuf, other_allocations_are_not_in_the_exported_pages)
{
    device_buffer first(md, 100);
    device_buffer second(md, 100);
    const exported_range exported(first.address, 100);
    EXPECT_NE(number(first.address) / host_page,
              number(second.address) / host_page);
    /* Linux before 6.7 has dma-bufs of whole blocks alone. */
    const size_t all = exports_parts() ? host_page : page;
    EXPECT_EQ(0u, exported.offset);
    expect_refused_import(exported.fd, 0, all + 1,
                          std::to_string(all + 1) +
                              " bytes at offset 0 are not in a dma-buf of " +
                              std::to_string(all) + " bytes");
}

TEST_F(dmabuf, registered_memory_is_exported_and_nothing_is_held_after)
{
    device_buffer device(md, page);
    const unsigned fds = count_open_fds();
    std::optional<exported_range> exported;
    {
        registration registered(md, device.data() + 5, 1000);
        exported.emplace(device.data() + 5, 1000);
    }
    EXPECT_EQ(fds + 1, count_open_fds());
    exported.reset();
    EXPECT_EQ(fds, count_open_fds());
}

TEST_F(dmabuf, what_is_no_device_memory_is_not_exported)
{
    GAUDI_NEEDS(own_pool);
    std::vector<char> host(8192);
    expect_refused_export(host.data(), 1);
    {
        registration registered(md, host.data(), host.size());
        expect_refused_export(host.data(), 1);
    }
    expect_refused_export(nullptr, 1);
    expect_refused_export(reinterpret_cast<void *>(0x1001fff000000000), 1);
    expect_refused_export(reinterpret_cast<void *>(UINTPTR_MAX), 1);
    const void *freed;
    {
        device_buffer device(md, 10000);
        freed = device.address;
        expect_refused_export(device.address, 0);
        expect_refused_export(device.address, 10001);
        expect_refused_export(device.data() + 1, 10000);
        expect_refused_export(device.data() + 10000, 1);
        expect_refused_export(device.data() - 1, 2);
        expect_refused_export(device.data() + 1, SIZE_MAX);
    }
    expect_refused_export(freed, 1);
}

TEST_F(dmabuf, outputs_are_needed)
{
    device_buffer device(md, 4096);
    int fd = -1;
    size_t offset;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, GAUDI_CALL(ucx_gaudi_dmabuf_export)(
                                         device.address, 1, nullptr, &offset));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, GAUDI_CALL(ucx_gaudi_dmabuf_export)(
                                         device.address, 1, &fd, nullptr));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_dmabuf_import)(0, 0, 1, nullptr, nullptr));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_mem_query)(device.address, 1, nullptr));
    EXPECT_THAT(take_logs(), ::testing::Each(HasSubstr("is NULL")));
}

TEST_F(dmabuf, memory_may_be_freed_before_its_dmabuf)
{
    GAUDI_NEEDS(imports);
    GAUDI_NEEDS(own_pool);
    std::vector<char> text(10000);
    fill_pattern(text.data(), text.size(), 6);
    std::optional<exported_range> exported;
    {
        device_buffer device(md, text.size() + 100);
        tl->put(text.data(), text.size(), device.remote(100));
        exported.emplace(device.data() + 100, text.size());
    }
    {
        imported_range range(exported->fd, exported->offset, text.size());
        exported.reset();
        device_buffer later(md, page - 4096);
        std::vector<char> other(page - 4096, 'x');
        tl->put(other.data(), other.size(), later.remote());
        EXPECT_TRUE(tl->holds(number(range.address), text.size(), 6))
            << "the later allocation is elsewhere";
        EXPECT_EQ(2u, engine_hooks::counters().allocations);
    }
    /* The card gets it back with the next call that looks. */
    device_buffer last(md, 1);
}

TEST_F(dmabuf, exports_leave_nothing)
{
    expect_exports_to_leave_nothing(1000);
}

TEST_F(dmabuf, a_million_exports_leave_nothing)
{
    expect_exports_to_leave_nothing(1'000'000);
}

/* --- import --------------------------------------------------------------- */

TEST_F(dmabuf, an_import_is_device_memory_to_ucx)
{
    GAUDI_NEEDS(imports);
    device_buffer device(md, page);
    const exported_range exported(device.data() + 5000, 20000);
    void *address;
    ucs_memory_info_t info;
    {
        imported_range range(exported.fd, exported.offset + 10, 19000);
        address           = range.address;
        auto *const inner = static_cast<char *>(address) + 18999;

        EXPECT_EQ(UCS_OK, ucs_memtype_cache_lookup(inner, 1, &info));
        EXPECT_EQ(UCS_MEMORY_TYPE_UNKNOWN, info.type) << "ask mem_query once";
        const auto attr = query_memory(md, inner, 1);
        EXPECT_EQ(GAUDI_CALL(ucx_gaudi_memory_type)(), attr.mem_type);
        EXPECT_STREQ("gaudi0", ucs_topo_sys_device_get_name(attr.sys_dev));
        EXPECT_EQ(address, attr.base_address);
        EXPECT_EQ(19000u, attr.alloc_length);
        ucs_memory_type_t type;
        EXPECT_EQ(UCS_OK, uct_md_detect_memory_type(md, inner, 1, &type));
        EXPECT_EQ(attr.mem_type, type);
        EXPECT_EQ(UCS_OK, ucs_memtype_cache_lookup(inner, 1, &info));
        EXPECT_EQ(attr.mem_type, info.type);

        const auto known = query(inner, 1);
        EXPECT_EQ(address, known.base);
        EXPECT_EQ(19000u, known.length);
        EXPECT_STREQ("gaudi0", known.card);
        EXPECT_EQ(1, known.imported);
        EXPECT_EQ(0, query(device.address, 1).imported);
        query(inner, 2, UCS_ERR_INVALID_ADDR);
    }
    query(address, 1, UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_memtype_cache_lookup(address, 1, &info));
}

TEST_F(dmabuf, an_import_is_unmapped_with_its_last_registration)
{
    GAUDI_NEEDS(imports);
    device_buffer device(md, page);
    const uint64_t before = engine_hooks::counters().mappings;
    {
        imported_range range(device.address, 10000);
        EXPECT_EQ(before + 1, engine_hooks::counters().mappings);
        registration registered(md, static_cast<char *>(range.address) + 10,
                                100);
        EXPECT_EQ(UCS_OK, release(range.address));
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, release(range.address));
        EXPECT_FALSE(take_logs().empty());
        EXPECT_EQ(before + 1, engine_hooks::counters().mappings);
        range.address = nullptr;
    }
    EXPECT_EQ(before, engine_hooks::counters().mappings);
}

TEST_F(dmabuf, only_ranges_of_dmabufs_are_imported)
{
    GAUDI_NEEDS(imports);
    device_buffer device(md, page);
    std::optional<exported_range> exported;
    exported.emplace(device.address, 10000);
    const int fd     = exported->fd;
    const size_t all = exports_parts() ? 3 * host_page : page;
    for (const auto &[at, length] : {std::pair<size_t, size_t>{0, 0},
                                     {0, all + 1},
                                     {all, 1},
                                     {1, all},
                                     {SIZE_MAX, 2},
                                     {2, SIZE_MAX}}) {
        expect_refused_import(fd, at, length,
                              "in a dma-buf of " + std::to_string(all) +
                                  " bytes");
    }
    const int file = memfd_create("file", MFD_CLOEXEC);
    expect_refused_import(file, 0, 4096, "cannot be imported as a dma-buf");
    ASSERT_EQ(0, ftruncate(file, 4096));
    expect_refused_import(file, 0, 4096, "cannot be imported as a dma-buf");
    close(file);
    exported.reset();
    expect_refused_import(fd, 0, 4096, "Bad file descriptor");
    expect_refused_import(-1, 0, 4096, "Bad file descriptor");
    EXPECT_EQ(UCS_OK, release(nullptr));
}

TEST_F(dmabuf, only_imports_are_released)
{
    GAUDI_NEEDS(imports);
    char byte = 0;
    device_buffer device(md, page);
    const imported_range range(device.address, 10000);
    for (void *address :
         {static_cast<void *>(&byte), device.address,
          static_cast<void *>(static_cast<char *>(range.address) + 1),
          reinterpret_cast<void *>(UINTPTR_MAX)}) {
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, release(address));
        EXPECT_THAT(take_logs(),
                    ElementsAre(HasSubstr("no import gave this address")));
    }
}

TEST_F(dmabuf, a_card_has_to_be_open)
{
    GAUDI_NEEDS(imports);
    device_buffer device(md, page);
    const exported_range exported(device.address, 10000);
    for (const char *card : {"gaudi0", "0", "0000:19:00.0"}) {
        SCOPED_TRACE(card);
        imported_range range(exported.fd, exported.offset, 10000, card);
    }
    void *address = nullptr;
    for (const char *card : {"gaudi1", "1", "", "gaudi", "0000:1a:00.0"}) {
        EXPECT_EQ(UCS_ERR_NO_DEVICE, import_range(exported.fd, exported.offset,
                                                  10000, address, card))
            << card;
        EXPECT_THAT(take_logs(), ElementsAre(HasSubstr("has not opened it")));
    }
}

TEST_F(dmabuf, threads_export_and_import_at_a_time)
{
    GAUDI_NEEDS(imports);
    device_buffer device(md, page);
    std::vector<std::jthread> threads;
    std::atomic<unsigned> failures{0};
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (unsigned i = 0; i < 100; ++i) {
                int fd = -1;
                size_t offset;
                void *address;
                failures +=
                    (export_range(device.data() + t * 5000 + i, 4999, fd,
                                  offset) != UCS_OK) ||
                    (import_range(fd, offset, 4999, address) != UCS_OK) ||
                    (close(fd) != 0) || (release(address) != UCS_OK);
            }
        });
    }
    threads.clear(); /* when they have ended */
    EXPECT_EQ(0u, failures.load());
}

/* --- other settings and cards --------------------------------------------- */

TEST_IN_CHILD(dmabuf_settings, a_driver_without_import_is_named,
              {{{"HLTHUNK_EMU_IMPORT", "n"}}})
{
    load_module();
    collect_logs();
    const opened_domain md;
    const device_buffer device(md, 8192);
    const exported_range exported(device.address, 8192);
    void *address = nullptr;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED,
              import_range(exported.fd, exported.offset, 8192, address));
    EXPECT_EQ(nullptr, address);
    EXPECT_THAT(take_logs(), ElementsAre(::testing::EndsWith(
                                 "the driver cannot import dma-bufs")));
}

TEST_IN_CHILD(dmabuf_settings, nothing_works_before_ucx_has_cards)
{
    load_module();
    collect_logs();
    void *address = nullptr;
    int fd        = -1;
    size_t offset;
    EXPECT_EQ(UCS_ERR_NO_DEVICE, import_range(0, 0, 4096, address));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, export_range(&fd, 1, fd, offset));
    query(&fd, 1, UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(2u, take_logs().size());
}

TEST_IN_CHILD(dmabuf_settings, imports_of_several_cards_do_not_meet,
              {{{"UCX_GAUDI_DEVICES", "all"}, {"HLTHUNK_EMU_DEVICES", "3"}}})
{
    GAUDI_NEEDS(imports);
    GAUDI_NEEDS(second_card);
    constexpr unsigned cards = 3;
    constexpr size_t size    = 100'000;
    const opened_domain md;
    transport tl(md);
    device_buffer device(md, cards * size);
    std::vector<char> text(size);
    std::vector<void *> addresses;
    for (unsigned card = 0; card < cards; ++card) {
        fill_pattern(text.data(), size, card);
        tl.put(text.data(), size, device.remote(card * size));
        const exported_range exported(device.data() + card * size, size);
        void *address     = nullptr;
        const auto before = engine_hooks::counters_of(card).mappings;
        EXPECT_EQ(UCS_OK, import_range(exported.fd, exported.offset, size,
                                       address, std::to_string(card).c_str()));
        EXPECT_EQ(before + 1, engine_hooks::counters_of(card).mappings);
        addresses.push_back(address);
    }
    for (unsigned card = 0; card < cards; ++card) {
        const auto known = query(addresses[card], size);
        EXPECT_EQ(addresses[card], known.base);
        EXPECT_EQ("gaudi" + std::to_string(card), known.card);

        const auto before = engine_hooks::counters_of(card);
        EXPECT_TRUE(tl.holds(number(addresses[card]), size, card));
        const auto left = engine_hooks::counters_of(card);
        EXPECT_EQ(size,
                  left.device_to_host_bytes - before.device_to_host_bytes);
        EXPECT_EQ(UCS_OK, release(addresses[card]));
        EXPECT_EQ(left.mappings - 1, engine_hooks::counters_of(card).mappings);
    }
}

/* --- other processes ------------------------------------------------------ */

TEST_F(dmabuf, a_range_of_another_process_is_read_and_written)
{
    GAUDI_NEEDS(imports);
    exporting_process exporter;
    imported_range range(exporter.fd, exporting_process::offset,
                         exporting_process::size);
    const uint64_t place = number(range.address);
    EXPECT_TRUE(tl->holds(place, exporting_process::size, 9));

    imported_range again(exporter.fd, exporting_process::offset + 5, 100);
    char part[50];
    fill_pattern(part, sizeof(part), 9, 50'000);
    tl->put(part, sizeof(part), place);
    EXPECT_TRUE(tl->holds(number(again.address), 45, 9, 50'005));

    exporter.process->write_line("exit");
    EXPECT_THAT(exporter.process->wait(), ended(0, IsEmpty()))
        << "it frees what is imported, and ends";
    EXPECT_TRUE(tl->holds(place + 50, exporting_process::size - 50, 9, 50));
}

TEST_F(dmabuf, a_killed_exporter_does_not_hurt_the_importer)
{
    GAUDI_NEEDS(imports);
    device_buffer own(md, exporting_process::size);
    exporting_process exporter;
    imported_range range(exporter.fd, exporting_process::offset,
                         exporting_process::size);
    for (unsigned round = 0; round < 300; ++round) {
        counted_completion done;
        tl->start_put(range.address, exporting_process::size, own.remote(),
                      &done);
        if (round == 50) {
            exporter.process->kill(SIGKILL);
        }
        tl->flush();
        ASSERT_TRUE(ended_once(done));
    }
    EXPECT_EQ(SIGKILL, exporter.process->wait().signal);
    EXPECT_TRUE(tl->holds(own.remote(), exporting_process::size, 9));
}

TEST_F(dmabuf, of_parts_does_not_use_up_their_block)
{
    GAUDI_NEEDS(own_pool);
    std::vector<std::unique_ptr<device_buffer>> kept;
    for (unsigned i = 0; i < 100; ++i) {
        device_buffer exported(md, 4096);
        kept.push_back(std::make_unique<device_buffer>(md, 4096));
        const exported_range range(exported.address, 4096);
    }
    EXPECT_EQ(1u, engine_hooks::counters().allocations);
    kept.clear();
    EXPECT_EQ(0u, engine_hooks::counters().allocations);
}

} // namespace gaudi::test
