#include "hlthunk_shim/emu/node_file.h"

#include "hlthunk_shim/emu/asic.h"
#include "hlthunk_shim/emu/settings.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

constexpr uint64_t page_magic = 0x31656e7561475548;

using directory = std::unique_ptr<DIR, int (*)(DIR *)>;

directory open_directory(int parent, const char *path)
{
    const int fd = openat(parent, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened  = (fd >= 0) ? fdopendir(fd) : nullptr;
    if ((opened == nullptr) && (fd >= 0)) {
        close(fd);
    }
    return {opened, closedir};
}

/* The next entry that is a number, nullptr at the end. */
const char *next_number(const directory &of)
{
    while (const dirent *entry = readdir(of.get())) {
        if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) != 0) {
            return entry->d_name;
        }
    }
    return nullptr;
}

bool links_to(int parent, const char *name, const std::string &target)
{
    char text[512];
    const ssize_t length = readlinkat(parent, name, text, sizeof(text));
    return (length == static_cast<ssize_t>(target.size())) &&
           (target.compare(0, target.size(), text, target.size()) == 0);
}

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
    const directory fds = open_directory(AT_FDCWD, "/proc/self/fd");
    while (const char *name = (fds != nullptr) ? next_number(fds) : nullptr) {
        /* By its name: nobody's descriptor is touched but the own one. */
        const int number = std::atoi(name);
        struct stat info;
        if ((number != fd) &&
            (fstatat(dirfd(fds.get()), name, &info, 0) == 0) &&
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
    const std::string target = "/memfd:" + node_name(index) + " (deleted)";
    const uid_t user         = geteuid();
    node_sighting result;

    const directory processes = open_directory(AT_FDCWD, "/proc");
    if (processes == nullptr) {
        return result;
    }
    while (const char *process = next_number(processes)) {
        const std::string path = std::string(process) + "/fd";
        const directory fds =
            open_directory(dirfd(processes.get()), path.c_str());
        if (fds == nullptr) {
            continue; /* another user's, or gone */
        }
        while (const char *number = next_number(fds)) {
            if (!links_to(dirfd(fds.get()), number, target)) {
                continue;
            }
            const int fd =
                openat(dirfd(fds.get()), number, O_RDONLY | O_CLOEXEC);
            if (fd < 0) {
                continue;
            }
            struct stat info;
            uint64_t words[2];
            if ((fstat(fd, &info) == 0) && (info.st_uid == user)) {
                const bool readable =
                    (pread(fd, words, sizeof(words), 0) == sizeof(words)) &&
                    (words[0] == page_magic);
                /* A copy of a node that was closed reads as all free. */
                if (readable &&
                    (!result.readable || (words[1] < result.dram_free))) {
                    result.dram_free = words[1];
                }
                result.readable |= readable;
                result.open = true;
            }
            close(fd);
        }
    }
    return result;
}

} // namespace gaudi::emu
