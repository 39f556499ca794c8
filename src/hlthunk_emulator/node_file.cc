/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/node_file.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/settings.h"
#include "util/text.h"
#include "util/unique_fd.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::emu {

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

int node_file::create(unsigned index)
{
    const std::string name =
        "hlthunk-emu/" + get_settings().node + "/accel" + std::to_string(index);
    util::unique_fd fd(memfd_create(name.c_str(), MFD_CLOEXEC));
    if (!fd || (ftruncate(fd.get(), static_cast<off_t>(host_page)) != 0)) {
        return -errno;
    }
    id_ = node_id::of(fd.get());
    return fd.release();
}

bool node_file::resize(uint64_t size)
{
    return ftruncate(find(), static_cast<off_t>(size)) == 0;
}

int node_file::find()
{
    if (id_.is_current()) {
        return id_.fd;
    }
    const auto all = util::list_folder("/proc/self/fd");
    const auto found =
        std::find_if(all.begin(), all.end(), [this](const auto &entry) {
            return id_.is_same(std::atoi(entry.filename().c_str()));
        });
    id_.fd = (found == all.end()) ? -1 : std::atoi(found->filename().c_str());
    return id_.fd;
}

} // namespace gaudi::emu
