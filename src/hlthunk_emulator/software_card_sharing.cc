/* What a card is to others: forked children, control nodes of processes that do
 * not have it open, and other cards. */
#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/device_files.h"
#include "hlthunk_emulator/exported_buffer.h"
#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/software_card.h"
#include "util/fork_handlers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fcntl.h>
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

/* --- other cards ---------------------------------------------------------- */

int software_card::export_dmabuf(uint64_t va, uint64_t size, uint64_t offset)
{
    card_lock lock(lock_);
    if (const int met = enter(faulty_call::export_to); met != 0) {
        return met;
    }
    mmu_region *region = open_->table.find(va);
    if ((region == nullptr) || (region->kind != memory_kind::device)) {
        log("%s: export of %#lx, which no device map call returned",
            name_.c_str(), va);
        return -EINVAL;
    }
    if ((size == 0) || (size % host_page != 0) || (offset % host_page != 0) ||
        (offset > region->size) || (size > region->size - offset)) {
        log("%s: export of %lu bytes at offset %lu of %lu: must be pages "
            "inside the mapping",
            name_.c_str(), size, offset, region->size);
        return -EINVAL;
    }

    std::vector<hbm_run> runs;
    for (const hbm_run &run : open_->memory.find(region->handle)->runs) {
        if (offset >= run.size) {
            offset -= run.size;
            continue;
        }
        const uint64_t bytes = std::min(size, run.size - offset);
        runs.push_back({run.offset + offset, bytes});
        offset = 0;
        size -= bytes;
        if (size == 0) {
            break;
        }
    }
    return create_dmabuf(open_->memory.fd(), open_->holder.get(), index_,
                         get_settings().posted ? open_->memory.size() : 0, va,
                         runs);
}

int software_card::import_dmabuf(int fd, uint64_t size, uint64_t &va_p)
{
    /* Programs ask so whether there are imports; no fault is meant for that. */
    if (fcntl(fd, F_GETFD) < 0) {
        return -EBADF;
    }
    int ret = begin(faulty_call::import);
    if (ret != 0) {
        return ret;
    }
    imported_memory memory;
    ret = imported_memory::create(fd, size, index_, memory);
    if (ret != 0) {
        log("%s: import of file descriptor %d with %lu bytes: %s",
            name_.c_str(), fd, size,
            (ret == -EINVAL) ? "no dma-buf, or a smaller one"
                             : std::strerror(-ret));
        return ret;
    }
    const bool reached = get_settings().is_reached(index_, memory.card());
    if (!reached && (get_settings().no_route == without_route::refused)) {
        log("%s: no peer-to-peer between it and accel%u", name_.c_str(),
            memory.card());
        return -EPERM;
    }

    card_lock lock(lock_);
    ret = enter();
    if (ret != 0) {
        return ret;
    }
    const uint64_t before = open_->table.pages();
    va_p = open_->table.map_import(std::move(memory), size, reached);
    if (va_p == 0) {
        return -ENOMEM;
    }
    ++open_->totals.mappings;
    use_mmu(lock, before, open_->table.pages() - before);
    return 0;
}

int software_card::flush_posted()
{
    const card_lock lock(lock_);
    const int ret = enter();
    if ((ret == 0) && get_settings().posted) {
        flush_posted_writes(open_->memory.fd(), open_->memory.size());
    }
    return ret;
}

} // namespace gaudi::emu
