#include "hlthunk_shim/emu/nodes.h"

#include <atomic>

namespace gaudi::emu {

namespace {

constexpr unsigned max_fds    = 65536;
constexpr unsigned control_of = 0x8000;

/* 0, or 1 + index of the card, with control_of for control nodes. */
std::atomic<uint16_t> nodes[max_fds];

unsigned entry_of(int fd)
{
    return (static_cast<unsigned>(fd) < max_fds)
               ? nodes[fd].load(std::memory_order_relaxed)
               : 0;
}

} // namespace

card *find_compute(int fd)
{
    const unsigned entry = entry_of(fd);
    return ((entry != 0) && ((entry & control_of) == 0)) ? &card::at(entry - 1)
                                                         : nullptr;
}

card *find_any(int fd)
{
    const unsigned entry = entry_of(fd) & (control_of - 1);
    return (entry != 0) ? &card::at(entry - 1) : nullptr;
}

bool add_node(int fd, card &of, bool control)
{
    if (static_cast<unsigned>(fd) >= max_fds) {
        return false;
    }
    nodes[fd].store(
        static_cast<uint16_t>((of.index() + 1) | (control ? control_of : 0)),
        std::memory_order_relaxed);
    return true;
}

void remove_node(int fd)
{
    if (static_cast<unsigned>(fd) < max_fds) {
        nodes[fd].store(0, std::memory_order_relaxed);
    }
}

bool is_control(int fd)
{
    return (entry_of(fd) & control_of) != 0;
}

} // namespace gaudi::emu
