#include "hlthunk_emulator/memory_files.h"

#include "util/text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

namespace fs = std::filesystem;

bool is_own_file(int ret, const struct stat &info)
{
    return (ret == 0) && S_ISREG(info.st_mode) && (info.st_uid == geteuid());
}

/* Whoever may choose paths, in a mount namespace say, can have anything under
 * the name: a FIFO is not waited for. */
util::unique_fd open_own(const fs::path &entry, int access)
{
    struct stat info;
    if (!is_own_file(stat(entry.c_str(), &info), info)) {
        return {};
    }
    util::unique_fd fd(open(entry.c_str(), access | O_CLOEXEC | O_NONBLOCK));
    return is_own_file(fstat(fd.get(), &info), info) ? std::move(fd)
                                                     : util::unique_fd();
}

} // namespace

void visit_memory_files(const std::string &name, int access,
                        const std::function<bool(util::unique_fd)> &visit)
{
    const std::string target = "/memfd:" + name + " (deleted)";
    for (const fs::path &process : util::list_folder("/proc")) {
        /* Empty for another user's, and when it is gone. */
        for (const fs::path &entry : util::list_folder(process / "fd")) {
            std::error_code gone;
            if (fs::read_symlink(entry, gone).native() != target) {
                continue;
            }
            util::unique_fd fd = open_own(entry, access);
            if (fd && !visit(std::move(fd))) {
                return;
            }
        }
    }
}

} // namespace gaudi::emu
