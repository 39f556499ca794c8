#include "hlthunk_emulator/device_files.h"

namespace gaudi::emu {

namespace {

std::atomic<unsigned> files_end{0};

} // namespace

std::atomic<device_file> device_files[max_device_files];

bool add_device_file(int fd, device_file file)
{
    if (static_cast<unsigned>(fd) >= max_device_files) {
        return false;
    }
    device_files[fd].store(file, std::memory_order_relaxed);
    const unsigned above = static_cast<unsigned>(fd) + 1;
    unsigned end         = files_end.load();
    while ((end < above) && !files_end.compare_exchange_weak(end, above)) {}
    return true;
}

void remove_device_file(int fd)
{
    (void)add_device_file(fd, {});
}

void remove_device_file(int fd, device_file file)
{
    if (device_file_at(fd) == file) {
        remove_device_file(fd);
    }
}

int device_files_end()
{
    return static_cast<int>(files_end.load());
}

} // namespace gaudi::emu
