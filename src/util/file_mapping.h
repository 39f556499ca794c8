/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Files that other processes map, too, and owners of their mappings.
 */
#pragma once

#include "util/unique_fd.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace gaudi::util {

/** How long a file is and stays. Memory that could be taken away behind a
 *  mapping would kill with SIGBUS whoever touches it, and so does a huge page
 *  that there is not.
 *  @return Bytes; 0 for what may become shorter, or is no file in memory. */
[[nodiscard]] inline size_t lasting_length(int fd)
{
    struct stat info;
    struct statfs system;
    const int seals = fcntl(fd, F_GET_SEALS);
    return ((seals >= 0) && ((seals & F_SEAL_SHRINK) != 0) &&
            (fstat(fd, &info) == 0) && (fstatfs(fd, &system) == 0) &&
            (system.f_type == TMPFS_MAGIC))
               ? static_cast<size_t>(info.st_size)
               : 0;
}

/** How long a file this process may make (RLIMIT_FSIZE), bytes: a longer one is
 *  a signal that kills it, for files in memory, too. */
inline size_t longest_file()
{
    rlimit limit{};
    return (getrlimit(RLIMIT_FSIZE, &limit) == 0) ? limit.rlim_cur : SIZE_MAX;
}

/** A file in memory that stays as long as it is, all zeros.
 *  @return Invalid, with errno. */
[[nodiscard]] inline unique_fd make_lasting_file(const char *name,
                                                 size_t length)
{
    constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    unique_fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd && ((ftruncate(fd.get(), static_cast<off_t>(length)) != 0) ||
               (fcntl(fd.get(), F_ADD_SEALS, seals) != 0))) {
        fd.reset();
    }
    return fd;
}

class file_mapping {
public:
    file_mapping() = default;
    /** Own what is mapped already. */
    file_mapping(char *start, size_t length) : start_(start), length_(length) {}
    file_mapping(file_mapping &&other) noexcept
        : start_(std::exchange(other.start_, nullptr)), length_(other.length_)
    {}
    file_mapping &operator=(file_mapping &&other) noexcept
    {
        std::swap(start_, other.start_);
        std::swap(length_, other.length_);
        return *this;
    }
    ~file_mapping()
    {
        if (start_ != nullptr) {
            munmap(start_, length_);
        }
    }

    /** Map a part of a file, instead of what was mapped. No memory is set aside
     *  for it: files may be sparse.
     *  @return false, with errno. */
    [[nodiscard]] bool map(int fd, size_t offset, size_t length,
                           int protection = PROT_READ | PROT_WRITE)
    {
        void *start =
            mmap(nullptr, length, protection, MAP_SHARED | MAP_NORESERVE, fd,
                 static_cast<off_t>(offset));
        if (start == MAP_FAILED) {
            return false;
        }
        *this = file_mapping(static_cast<char *>(start), length);
        return true;
    }

    /** nullptr: nothing is mapped. */
    [[nodiscard]] char *start() const { return start_; }
    [[nodiscard]] size_t length() const { return length_; }

private:
    char *start_   = nullptr;
    size_t length_ = 0;
};

} // namespace gaudi::util
