#include "hlthunk_emulator/device_files.h"

#include <atomic>
#include <cstdint>

namespace gaudi::emu {

namespace {

constexpr unsigned max_fds   = 65536;
constexpr unsigned kind_bits = 2;

/* Index of the card above its kind. */
std::atomic<uint16_t> files[max_fds];
std::atomic<unsigned> files_end{0};

bool is_possible(int fd)
{
    return static_cast<unsigned>(fd) < max_fds;
}

} // namespace

device_file device_file_at(int fd)
{
    const unsigned entry =
        is_possible(fd) ? files[fd].load(std::memory_order_relaxed) : 0;
    return {static_cast<file_of>(entry % (1u << kind_bits)),
            entry >> kind_bits};
}

bool add_device_file(int fd, device_file file)
{
    if (!is_possible(fd)) {
        return false;
    }
    const unsigned entry =
        (file.card << kind_bits) | static_cast<unsigned>(file.kind);
    files[fd].store(static_cast<uint16_t>(entry), std::memory_order_relaxed);
    const unsigned above = static_cast<unsigned>(fd) + 1;
    unsigned end         = files_end.load();
    while ((end < above) && !files_end.compare_exchange_weak(end, above)) {}
    return true;
}

void remove_device_file(int fd)
{
    if (is_possible(fd)) {
        files[fd].store(0, std::memory_order_relaxed);
    }
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
