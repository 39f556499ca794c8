/* SPDX-License-Identifier: BSD-3-Clause */
/* Importing a dma-buf into the address space of another card. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/descriptor.h"
#include "common/process_state.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

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

TEST_F(emu_import, bytes_move_once_from_card_to_card)
{
    mark(card, va, mebi, 3);
    uint64_t imported = 0;
    ASSERT_EQ(do_import(size, imported), 0);
    const uint64_t own = other.allocate_mapped(mebi);

    for (uint32_t queue : {pdma0, pdma1}) {
        const auto before = other.counters();
        const auto source = card.counters();
        ASSERT_EQ(other.copy(queue, own, imported, mebi), completed);
        const auto after = other.counters();
        EXPECT_EQ(after.device_to_device_bytes - before.device_to_device_bytes,
                  mebi);
        EXPECT_EQ(after.host_to_device_bytes, before.host_to_device_bytes);
        EXPECT_EQ(after.device_to_host_bytes, before.device_to_host_bytes);
        EXPECT_EQ(card.counters().packets, source.packets)
            << "the exporter does nothing";
    }
    EXPECT_TRUE(marked(other, own, mebi, 3));
}

TEST_F(emu_import, an_internal_engine_does_not_reach_it)
{
    uint64_t imported = 0;
    ASSERT_EQ(do_import(size, imported), 0);
    const uint64_t own = other.allocate_mapped(1);
    const wished_faults only_the_job("packet=abort");
    EXPECT_EQ(other.copy(edma0, own, imported, 4096), aborted);
    EXPECT_EQ(other.copy(edma0, imported, own, 4096), aborted);
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

TEST_F(emu_import, an_interior_range_is_the_range)
{
    const uint64_t offset = device_page() - 8192;
    const int part        = export_range(card, va, 12288, offset);
    mark(card, va + offset, 12288, 4);

    uint64_t imported = 0;
    ASSERT_EQ(import(other.fd(), part, 12288, imported), 0);
    close(part);
    EXPECT_TRUE(marked(other, imported, 12288, 4));
}

TEST_F(emu_import, memory_in_pieces_is_one_range)
{
    const uint64_t first = card.allocate(1);
    (void)card.allocate(1);
    const uint64_t third = card.allocate(1);
    (void)card.allocate(1);
    ASSERT_EQ(hl().hlthunk_device_memory_free(card.fd(), first), 0);
    ASSERT_EQ(hl().hlthunk_device_memory_free(card.fd(), third), 0);
    const uint64_t pieces = card.allocate_mapped(3 * device_page());
    const int part        = export_range(card, pieces, 3 * device_page());
    uint64_t imported     = 0;
    ASSERT_EQ(import(other.fd(), part, 3 * device_page(), imported), 0);
    close(part);

    for (uint64_t page = 1; page < 3; ++page) {
        const uint64_t border = page * device_page() - 4096;
        mark(card, pieces + border, 8192, page);
        EXPECT_TRUE(marked(other, imported + border, 8192, page));
    }
}

TEST_F(emu_import, a_card_imports_its_own_memory)
{
    uint64_t imported = 0;
    ASSERT_EQ(import(card.fd(), buf, size, imported), 0);
    EXPECT_EQ(card.copy(pdma0, va, imported + 4096, 4096), completed);
    EXPECT_EQ(unmap(card, imported), 0);
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

/* A message like that of a dma-buf, with other memory. */
TEST_F(emu_import, memory_that_could_vanish_is_refused)
{
    std::vector<char> bytes(65536);
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov        = &part;
    message.msg_iovlen     = 1;
    message.msg_control    = control;
    message.msg_controllen = sizeof(control);
    const ssize_t length   = recvmsg(buf, &message, MSG_PEEK);
    ASSERT_GT(length, 0);
    int fds[2];
    std::memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fds));
    part.iov_len = static_cast<size_t>(length);

    uint64_t imported;
    const int unsealed = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(unsealed, static_cast<off_t>(2 * size)), 0);
    const int sealed = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    for (int memory : {unsealed, sealed}) {
        int sockets[2];
        ASSERT_EQ(
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        std::memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &memory,
                    sizeof(memory));
        message.msg_flags = 0;
        ASSERT_EQ(sendmsg(sockets[1], &message, 0), length);
        EXPECT_EQ(import(other.fd(), sockets[0], size, imported), -EINVAL);
        close(sockets[0]);
        close(sockets[1]);
        close(memory);
    }
    close(fds[0]);
    close(fds[1]);
}

TEST_F(emu_import, other_calls_are_refused)
{
    uint64_t imported;
    EXPECT_EQ(import(other.fd(), buf, size, imported, shim::memory_ioctl_old),
              -ENOTTY);
    EXPECT_EQ(import(other.fd(), buf, size, imported, shim::memory_ioctl, 98),
              -EINVAL);
    EXPECT_EQ(import(buf, buf, size, imported), -EBADF) << "no device";
    const int control = hl().hlthunk_open_control(1, nullptr);
    EXPECT_EQ(import(control, buf, size, imported), -EBADF);
    hl().hlthunk_close(control);
    errno = 0;
    EXPECT_EQ(hl().hlthunk_sys_ioctl(other.fd(), shim::memory_ioctl, nullptr),
              -1);
    EXPECT_EQ(errno, EFAULT);
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

TEST(emu_import_setting, other_values_are_refused)
{
    const child_result child =
        run_child("finds_no_cards", {{{"HLTHUNK_EMU_IMPORT", "no"}}});
    EXPECT_EQ(child.exit_code, 0) << child.error;
    EXPECT_THAT(child.error,
                ::testing::HasSubstr("HLTHUNK_EMU_IMPORT='no' is not y "));
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

TEST_F(emu_no_route, such_a_copy_alone_fails_if_that_is_wished_for)
{
    const wished_faults only_the_jobs("packet=abort");
    EXPECT_EQ(other.copy(pdma0, imported, own, 64), aborted);
    EXPECT_EQ(other.copy(pdma1, own, imported, 64), aborted);
    EXPECT_EQ(other.copy(pdma0, own, own + 64, 64), completed);
    EXPECT_EQ(unmap(other, imported), 0);
}

TEST_F(emu_no_route, other_cards_have_one)
{
    uint64_t back = 0;
    ASSERT_EQ(import(card.fd(), buf, size, back), 0);
    EXPECT_EQ(card.copy(pdma0, va, back + 4096, 64), completed);
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

TEST_F(emu_import, import_and_unmap_leave_nothing)
{
    const unsigned fds  = count_open_fds();
    const unsigned maps = count_mappings();
    for (int i = 0; i < 200; ++i) {
        uint64_t imported = 0;
        ASSERT_EQ(do_import(size, imported), 0);
        ASSERT_EQ(unmap(other, imported), 0);
    }
    EXPECT_EQ(count_open_fds(), fds);
    EXPECT_EQ(count_mappings(), maps);
    EXPECT_EQ(other.counters().mappings, 0u);
}

TEST_F(emu_import, refused_imports_leave_nothing)
{
    const unsigned fds  = count_open_fds();
    const unsigned maps = count_mappings();
    uint64_t imported   = 0;
    for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(do_import(size + 1, imported), -EINVAL);
        ASSERT_EQ(import(-1, buf, size, imported), -EBADF);
    }
    EXPECT_EQ(count_open_fds(), fds);
    EXPECT_EQ(count_mappings(), maps);
}

TEST_F(emu_import, a_forked_child_of_the_importer_holds_nothing)
{
    uint64_t imported = 0;
    ASSERT_EQ(do_import(size, imported), 0);
    gate end;
    forked_process child([&] {
        close(buf); /* the test's own copy */
        return end.wait() ? 0 : 1;
    });
    EXPECT_EQ(unmap(other, imported), 0);
    close(buf);
    buf = -1;
    EXPECT_TRUE(eventually([&] { return unmap(card, va) == 0; }));
    end.open();
    EXPECT_EQ(child.wait().exit_code, 0);
}

GAUDI_CHILD(exports_and_waits)
{
    own_card card(0);
    const uint64_t va = card.allocate_mapped(1);
    mark(card, va, mebi, 5);
    const int buf = export_range(card, va, mebi);
    GAUDI_CHILD_REQUIRE(buf >= 0);

    GAUDI_CHILD_REQUIRE(send_descriptor(child_fd, buf));
    close(buf);
    tell_parent("sent");
    wait_for_parent();
    tell_parent(unmap(card, va) == -EINVAL ? "refused" : "unmapped");
    wait_for_parent();
    tell_parent(unmap(card, va) == 0 ? "unmapped" : "refused");
    wait_for_parent();
    return 0;
}

/* An exporter in another process, and what it exported. */
class remote_exporter {
public:
    remote_exporter()
    {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends),
                  0);
        process = std::make_unique<child_process>("exports_and_waits",
                                                  child_options{{}, ends[1]});
        close(ends[1]);
        EXPECT_EQ(process->read_line(), "sent");

        buf = receive_descriptor(ends[0]);
        EXPECT_GE(buf, 0);
        close(ends[0]);
    }
    ~remote_exporter() { close(buf); }
    remote_exporter(const remote_exporter &)            = delete;
    remote_exporter &operator=(const remote_exporter &) = delete;

    std::unique_ptr<child_process> process;
    int buf = -1;
};

TEST(emu_import_across_processes, unmap_is_refused_while_imported)
{
    remote_exporter exporter;
    raw_card card(1);
    uint64_t imported = 0;
    ASSERT_EQ(import(card.fd(), exporter.buf, mebi, imported), 0);
    close(std::exchange(exporter.buf, -1));
    exporter.process->write_line("try");
    EXPECT_EQ(exporter.process->read_line(), "refused");
    EXPECT_TRUE(marked(card, imported, mebi, 5));
    ASSERT_EQ(unmap(card, imported), 0);
    exporter.process->write_line("try again");
    EXPECT_EQ(exporter.process->read_line(), "unmapped");
    exporter.process->write_line("exit");
    const child_result child = exporter.process->wait();
    EXPECT_EQ(child.exit_code, 0) << child.error;
}

TEST(emu_import_across_processes, the_memory_outlives_a_killed_exporter)
{
    remote_exporter exporter;
    raw_card card(1);
    uint64_t imported = 0;
    ASSERT_EQ(import(card.fd(), exporter.buf, mebi, imported), 0);
    close(std::exchange(exporter.buf, -1));
    exporter.process->kill(SIGKILL);
    EXPECT_EQ(exporter.process->wait().signal, SIGKILL);

    EXPECT_TRUE(marked(card, imported, mebi, 5));
    {
        raw_card early(0);
        EXPECT_EQ(early.fd(), -EBUSY) << "as long as its memory is in use";
    }
    ASSERT_EQ(unmap(card, imported), 0);
    own_card late(0);
}

TEST(emu_import_across_processes, a_killed_exporter_does_not_disturb_a_copy)
{
    constexpr uint32_t bytes = mebi;
    remote_exporter exporter;
    raw_card card(1);
    uint64_t imported = 0;
    ASSERT_EQ(import(card.fd(), exporter.buf, mebi, imported), 0);
    close(std::exchange(exporter.buf, -1));
    const uint64_t own = card.allocate_mapped(1);
    for (int round = 0; round < 400; ++round) {
        ASSERT_EQ(card.copy(pdma0, own, imported, bytes), completed);
        ASSERT_EQ(card.copy(pdma1, imported, own, bytes), completed);
        if (round == 100) {
            exporter.process->kill(SIGKILL);
        }
    }
    EXPECT_EQ(exporter.process->wait().signal, SIGKILL);
    EXPECT_TRUE(marked(card, own, bytes, 5));
}

} // namespace
