/* SPDX-License-Identifier: BSD-3-Clause */
/* What a card is to others: forked children, and control nodes of processes
 * that do not have it open. */
#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/device_files.h"
#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/software_card.h"
#include "util/fork_handlers.h"

#include <cerrno>
#include <memory>

#include <unistd.h>

namespace gaudi::emu {

/* --- forked children ------------------------------------------------------ */

void software_card::show_children()
{
    for_children_ = {open_->node.id(), node_id::of(open_->holder.get())};
}

bool software_card::is_inherited(int fd) const
{
    return (inherited_.holder.fd >= 0) && inherited_.node.is_same(fd);
}

void software_card::after_fork_in_child()
{
    std::construct_at(&lock_);
    if (context *const parents = open_.release()) {
        parents->previous = abandoned_;
        abandoned_        = parents;
    }
    if (for_children_.holder.is_current()) {
        inherited_ = for_children_;
    }
    for_children_ = {};
    if (!inherited_.node.is_current()) {
        drop_inherited();
    }
}

/* In the child. The compute nodes that are known are the parent's. */
void software_card::after_fork()
{
    for (unsigned i = 0; i < max_cards; ++i) {
        at(i).after_fork_in_child();
    }
    for (int fd = 0; fd < device_files_end; ++fd) {
        const device_file file = device_file_at(fd);
        if (file.kind != file_of::compute) {
            continue;
        }
        if (at(file.card).is_inherited(fd)) {
            (void)add_device_file(fd, {file_of::inherited, file.card});
        } else {
            remove_device_file(fd);
        }
    }
}

void software_card::prepare_for_fork()
{
    at(0); /* now, and not for the first time in a handler */
    if (!util::run_in_children_once<after_fork>()) {
        throw std::bad_alloc();
    }
}

/* Let go of what keeps others from opening the card. */
void software_card::drop_inherited()
{
    if (inherited_.holder.is_current()) {
        ::close(inherited_.holder.fd);
    }
    remove_device_file(inherited_.node.fd, {file_of::inherited, index_});
    inherited_ = {};
}

int software_card::close_inherited(int fd)
{
    const card_lock lock(lock_);
    if (inherited_.node.fd == fd) {
        drop_inherited();
    }
    return (::close(fd) == 0) ? 0 : -errno;
}

/* --- control nodes -------------------------------------------------------- */

uint64_t software_card::free_dram()
{
    {
        card_lock lock(lock_);
        drop_stale(lock);
        if (open_ != nullptr) {
            return open_->memory.free_bytes();
        }
    }
    const uint64_t all = get_settings().user_hbm();
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

void software_card::open_stats(hlthunk_open_stats_info &stats)
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
