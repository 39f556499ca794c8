#include "hlthunk_shim/emu/nodes.h"

#include "hlthunk_shim/emu/settings.h"

#include <atomic>

namespace gaudi::emu {

namespace {

constexpr unsigned max_fds      = 65536;
constexpr unsigned control_of   = 0x8000;
constexpr unsigned inherited_of = 0x4000;

/* 0, or 1 + index of the card, with control_of for control nodes and
 * inherited_of for compute nodes of the parent process. */
std::atomic<uint16_t> nodes[max_fds];
std::atomic<unsigned> nodes_end{0}; /* above all that were ever in use */

void set_entry(int fd, unsigned entry)
{
    const auto number = static_cast<unsigned>(fd);
    nodes[number].store(static_cast<uint16_t>(entry),
                        std::memory_order_relaxed);
    unsigned end = nodes_end.load();
    while ((end <= number) &&
           !nodes_end.compare_exchange_weak(end, number + 1)) {}
}

unsigned entry_of(int fd)
{
    return (static_cast<unsigned>(fd) < max_fds)
               ? nodes[fd].load(std::memory_order_relaxed)
               : 0;
}

/* What a number that is not known is: perhaps a duplicate of a compute node. */
unsigned look_up(int fd)
{
    const unsigned known = entry_of(fd);
    if ((known != 0) || (fd < 0)) {
        return known;
    }
    for (unsigned i = 0; i < get_settings().devices; ++i) {
        if (card::at(i).recognize(fd)) {
            break;
        }
    }
    return entry_of(fd);
}

card *compute_of(unsigned entry)
{
    return ((entry != 0) && ((entry & (control_of | inherited_of)) == 0))
               ? &card::at(entry - 1)
               : nullptr;
}

} // namespace

card *find_compute(int fd)
{
    return compute_of(look_up(fd));
}

card *find_known_compute(int fd)
{
    return compute_of(entry_of(fd));
}

card *find_any(int fd)
{
    const unsigned entry = look_up(fd) & ~control_of;
    return ((entry != 0) && ((entry & inherited_of) == 0))
               ? &card::at(entry - 1)
               : nullptr;
}

card *find_inherited(int fd)
{
    const unsigned entry = entry_of(fd);
    return ((entry & inherited_of) != 0)
               ? &card::at((entry & ~inherited_of) - 1)
               : nullptr;
}

int why_no_node(int fd)
{
    const card *inherited = find_inherited(fd);
    if (inherited == nullptr) {
        return -EBADF;
    }
    log("accel%u: file descriptor %d is of the process that forked this one, "
        "and only of use there",
        inherited->index(), fd);
    return -ENODEV;
}

bool add_node(int fd, card &of, bool control)
{
    if (static_cast<unsigned>(fd) >= max_fds) {
        return false;
    }
    set_entry(fd, (of.index() + 1) | (control ? control_of : 0));
    return true;
}

void add_inherited_node(int fd, card &of)
{
    if (static_cast<unsigned>(fd) < max_fds) {
        set_entry(fd, (of.index() + 1) | inherited_of);
    }
}

void inherit_nodes()
{
    const auto end = static_cast<int>(nodes_end.load());
    for (int fd = 0; fd < end; ++fd) {
        card *of = find_known_compute(fd);
        if (of == nullptr) {
            continue;
        }
        if (of->is_inherited(fd)) {
            add_inherited_node(fd, *of);
        } else {
            remove_node(fd);
        }
    }
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
