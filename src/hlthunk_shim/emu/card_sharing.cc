/* What a card is to others: forked children, and control nodes of processes
 * that do not have it open. */
#include "hlthunk_shim/emu/asic.h"
#include "hlthunk_shim/emu/box.h"
#include "hlthunk_shim/emu/card.h"
#include "hlthunk_shim/emu/nodes.h"
#include "hlthunk_shim/emu/settings.h"

#include <cerrno>

#include <unistd.h>

namespace gaudi::emu {

/* --- forked children ------------------------------------------------------ */

void card::after_fork_in_child()
{
    if (open_ != nullptr) {
        /* Never destroyed: its condition variable remembers the parent's
         * threads, and what it owns is the parent's. */
        open_->previous = std::move(abandoned_);
        abandoned_      = std::move(open_);
        inherited_      = {abandoned_->node.id(), abandoned_->holder};
        for (const int duplicate : abandoned_->duplicates) {
            if (inherited_.node.is_same(duplicate)) {
                add_inherited_node(duplicate, *this);
            }
        }
        abandoned_->disown();
    }
    if (inherited_.node.is_current()) {
        add_inherited_node(inherited_.node.fd, *this);
    } else {
        drop_inherited();
    }
    lock_.unlock();
}

/* Let go of what keeps others from opening the card. */
void card::drop_inherited()
{
    if (inherited_.holder >= 0) {
        ::close(inherited_.holder);
    }
    if (find_inherited(inherited_.node.fd) == this) {
        remove_node(inherited_.node.fd);
    }
    inherited_ = {};
}

void card::context::disown()
{
    memory.disown();
    table.disown();
}

int card::close_inherited(int fd)
{
    const card_lock lock(lock_);
    if (inherited_.node.fd == fd) {
        drop_inherited();
    }
    return (::close(fd) == 0) ? 0 : -errno;
}

/* --- control nodes -------------------------------------------------------- */

uint64_t card::free_dram()
{
    {
        card_lock lock(lock_);
        drop_stale(lock);
        if (open_ != nullptr) {
            return open_->memory.free_bytes();
        }
    }
    const uint64_t all = get_settings().hbm / dram_page * dram_page;
    if (!card_is_taken(index_)) {
        return all;
    }
    const node_sighting seen = look_for_node(index_);
    if (!seen.readable) {
        log("%s: taken by a process that cannot be looked into: its device "
            "memory counts as free",
            name_.c_str());
        return all;
    }
    return seen.dram_free;
}

void card::open_stats(hlthunk_open_stats_info &stats)
{
    using std::chrono::duration_cast;
    using std::chrono::milliseconds;

    stats = {};
    {
        card_lock lock(lock_);
        drop_stale(lock);
        stats.open_counter        = opens_;
        stats.last_open_period_ms = static_cast<uint64_t>(
            duration_cast<milliseconds>(last_period_).count());
        if (open_ != nullptr) {
            stats.is_compute_ctx_active = 1;
            return;
        }
    }
    if (card_is_taken(index_)) {
        stats.is_compute_ctx_active  = 1;
        stats.compute_ctx_in_release = look_for_node(index_).open ? 0 : 1;
    }
}

} // namespace gaudi::emu
