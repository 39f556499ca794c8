/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/node_file.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/settings.h"
#include "util/text.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

constexpr uint64_t page_magic = 0x31656e7561475548;

/* Written by the process that has the card open, read by others. */
struct page {
    std::atomic<uint64_t> magic;
    std::atomic<uint64_t> dram_free;
};

} // namespace

node_id node_id::of(int fd)
{
    struct stat info;
    return (fstat(fd, &info) == 0) ? node_id{fd, info.st_dev, info.st_ino}
                                   : node_id{};
}

bool node_id::is_current() const
{
    struct stat info;
    return (fstat(fd, &info) == 0) && (info.st_dev == dev) &&
           (info.st_ino == inode);
}

int node_id::find_duplicate() const
{
    for (const auto &entry : util::list_folder("/proc/self/fd")) {
        /* By its name: nobody's descriptor is touched but the own one. */
        const int number = std::atoi(entry.filename().c_str());
        struct stat info;
        if ((number != fd) && (stat(entry.c_str(), &info) == 0) &&
            (info.st_dev == dev) && (info.st_ino == inode)) {
            return number;
        }
    }
    return -1;
}

int node_file::create(unsigned index)
{
    const int fd = memfd_create(node_name(index).c_str(), MFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    struct stat info;
    if ((fstat(fd, &info) != 0) ||
        (ftruncate(fd, static_cast<off_t>(host_page)) != 0) ||
        !page_.map(fd, 0, host_page)) {
        const int ret = -errno;
        close(fd);
        return ret;
    }
    madvise(page_.start(), host_page, MADV_DONTFORK);
    id_ = {fd, info.st_dev, info.st_ino};
    return 0;
}

bool node_file::resize(uint64_t size) const
{
    return ftruncate(id_.fd, static_cast<off_t>(size)) == 0;
}

void node_file::publish(uint64_t dram_free)
{
    auto *shown = reinterpret_cast<page *>(page_.start());
    shown->dram_free.store(dram_free, std::memory_order_relaxed);
    shown->magic.store(page_magic, std::memory_order_release);
}

std::string node_name(unsigned index)
{
    return "hlthunk-emu/" + get_settings().node + "/accel" +
           std::to_string(index);
}

node_sighting look_for_node(unsigned index)
{
    node_sighting result;
    const auto look = [&](const util::unique_fd &file) {
        uint64_t words[2];
        result.open = true;
        if ((pread(file.get(), words, sizeof(words), 0) != sizeof(words)) ||
            (words[0] != page_magic)) {
            return true;
        }
        /* A copy of a node that was closed reads as all free. */
        if (!result.readable || (words[1] < result.dram_free)) {
            result.dram_free = words[1];
        }
        result.readable = true;
        return true;
    };
    visit_memory_files(node_name(index), O_RDONLY, look);
    return result;
}

} // namespace gaudi::emu
