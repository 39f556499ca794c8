/* SPDX-License-Identifier: BSD-3-Clause */
/* Importing a dma-buf into the address space of another card. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

namespace shim = gaudi::shim;

/* Card 0 exports, card 1 imports. */
class emu_import : public emu {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        ASSERT_GE(other.fd(), 0);
        va  = card.allocate_mapped(size);
        buf = export_range(card, va, size);
        ASSERT_GE(buf, 0);
    }
    void TearDown() override { close(buf); }

    int do_import(uint64_t length, uint64_t &imported)
    {
        return import(other.fd(), buf, length, imported);
    }

    const uint64_t size = 2 * device_page();
    raw_card other{1};
    uint64_t va = 0;
    int buf     = -1;
};

TEST_F(emu_import, the_other_card_reads_and_writes_the_memory)
{
    constexpr uint32_t bytes = 100'000;
    const uint64_t position  = device_page() - 5000;
    mark(card, va + position, bytes, 1);

    uint64_t imported = 0;
    ASSERT_EQ(do_import(size, imported), 0);
    EXPECT_TRUE(marked(other, imported + position, bytes, 1));

    mark(other, imported + position, bytes, 2);
    EXPECT_TRUE(marked(card, va + position, bytes, 2));
}

TEST_F(emu_import, a_copy_ends_where_it_ends)
{
    const uint64_t own = other.allocate_mapped(1);
    ASSERT_EQ(other.copy(edma0, own, own + 4096, 4096), completed)
        << "maps what would come behind the import";
    uint64_t imported = 0;
    ASSERT_EQ(do_import(size, imported), 0);
    EXPECT_EQ(other.copy(pdma0, own, imported + size - 4096, 4096), completed);
    const wished_faults only_the_job("packet=abort");
    EXPECT_EQ(other.copy(pdma0, own, imported + size - 4096, 4097), aborted);
}

/* --- refusals ------------------------------------------------------------- */

TEST_F(emu_import, a_part_is_from_the_first_byte_on)
{
    const wished_faults only_the_jobs("packet=abort");
    mark(card, va + device_page() - 2048, 4096, 5);
    char seen[4096];
    /* Mapped once: later it might come to be right behind an import. */
    const uint64_t to = other.map_host(seen, sizeof(seen));
    const auto read   = [&](uint64_t from, uint32_t bytes) {
        return other.copy(shim::gaudi2_queue_pdma1, to, from, bytes);
    };
    for (const uint64_t length : {uint64_t{4096}, device_page() + 4096}) {
        uint64_t imported = 0;
        ASSERT_EQ(do_import(length, imported), 0) << length;
        const bool has_text = length > device_page();
        std::memset(seen, 0, sizeof(seen));
        EXPECT_EQ(read(imported + device_page() - 2048, sizeof(seen)),
                  has_text ? completed : aborted);
        EXPECT_EQ(has_text, bool{has_pattern(seen, sizeof(seen), 5)});
        EXPECT_EQ(read(imported + length, 1), aborted)
            << "no more than asked for";
        EXPECT_EQ(unmap(other, imported), 0);
    }
    EXPECT_EQ(unmap(other, to), 0);
}

TEST_F(emu_import, the_length_is_at_most_that_of_the_dmabuf)
{
    uint64_t imported = 0;
    for (uint64_t length : {uint64_t{0}, size + 4096, UINT64_MAX}) {
        EXPECT_EQ(do_import(length, imported), -EINVAL) << length;
    }
    EXPECT_EQ(imported, 0u);
    EXPECT_EQ(other.counters().mappings, 0u);
}

TEST_F(emu_import, other_files_are_refused)
{
    int ends[2];
    int sockets[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets),
              0);
    const int memory = memfd_create("some", MFD_CLOEXEC);
    uint64_t imported;
    for (int fd : {ends[0], ends[1], sockets[0], memory, card.fd()}) {
        EXPECT_EQ(import(other.fd(), fd, 4096, imported), -EINVAL) << fd;
    }
    ASSERT_EQ(write(sockets[1], "nothing of the kind", 19), 19);
    EXPECT_EQ(import(other.fd(), sockets[0], 4096, imported), -EINVAL);
    for (int fd : {ends[0], ends[1], sockets[0], sockets[1], memory}) {
        close(fd);
    }
    EXPECT_EQ(import(other.fd(), memory, 4096, imported), -EBADF) << "closed";
    EXPECT_EQ(import(other.fd(), -1, 4096, imported), -EBADF);
}

GAUDI_CHILD(has_a_driver_without_import)
{
    raw_card card(0);
    raw_card other(1);
    const int buf = export_range(card, card.allocate_mapped(1), 4096);
    GAUDI_CHILD_REQUIRE(buf >= 0);
    uint64_t imported;
    GAUDI_CHILD_REQUIRE(import(other.fd(), buf, 4096, imported) == -EINVAL);
    GAUDI_CHILD_REQUIRE(import(other.fd(), -1, 4096, imported) == -EINVAL);
    return 0;
}

TEST(emu_import_setting, a_driver_can_have_no_import)
{
    EXPECT_TRUE(child_passes("has_a_driver_without_import",
                             {{{"HLTHUNK_EMU_IMPORT", "n"}}}));
}

TEST_F(emu_import, a_dmabuf_tells_its_size)
{
    const auto seek = hl().hlthunk_sys_lseek;
    EXPECT_EQ(seek(buf, 0, SEEK_END), static_cast<long>(size));
    EXPECT_EQ(seek(buf, 0, SEEK_SET), 0);
    for (auto [offset, whence] : {std::pair{1l, SEEK_END},
                                  {-1l, SEEK_END},
                                  {1l, SEEK_SET},
                                  {0l, SEEK_CUR}}) {
        EXPECT_EQ(seek(buf, offset, whence), -1);
        EXPECT_EQ(errno, EINVAL);
    }
    const int file = memfd_create("file", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file, 77), 0);
    EXPECT_EQ(seek(file, -7, SEEK_END), 70) << "as lseek(2)";
    close(file);
    EXPECT_EQ(seek(file, 0, SEEK_END), -1);
    EXPECT_EQ(errno, EBADF);
}

/* --- without a way to the other card ------------------------------------- */

class emu_no_route : public emu_import {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu_import::SetUp());
        ASSERT_EQ(do_import(size, imported), 0);
        own = other.allocate_mapped(1);
    }

    const wished_faults no_route{"route=reset@1"};
    uint64_t imported = 0;
    uint64_t own      = 0;
};

TEST_F(emu_no_route, the_first_copy_resets_the_card)
{
    EXPECT_EQ(other.copy(pdma0, own, own + 64, 64), completed);
    const uint64_t seq =
        other.start({other.copy_chunk(pdma1, own, imported, 64)});
    EXPECT_NE(other.wait(seq), completed);
    EXPECT_EQ(other.wait(seq), in_reset(seq));
    mark(card, va, 64, 1);
}

/* --- lifetime ------------------------------------------------------------- */

TEST_F(emu_import, an_import_keeps_the_export_alive)
{
    uint64_t first  = 0;
    uint64_t second = 0;
    ASSERT_EQ(do_import(size, first), 0);
    ASSERT_EQ(do_import(size, second), 0);
    EXPECT_NE(first, second);
    close(buf);
    EXPECT_EQ(unmap(card, va), -EINVAL);
    EXPECT_EQ(unmap(other, first), 0);
    EXPECT_EQ(unmap(card, va), -EINVAL);
    EXPECT_EQ(unmap(other, second), 0);
    EXPECT_EQ(unmap(card, va), 0);
    buf = -1;
}

TEST_F(emu_import, closing_the_importer_ends_its_imports)
{
    uint64_t imported = 0;
    ASSERT_EQ(do_import(size, imported), 0);
    close(buf);
    close_card(other);
    EXPECT_EQ(unmap(card, va), 0);
    buf = -1;
}

} // namespace
