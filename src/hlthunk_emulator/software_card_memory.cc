/* The memory of an open card: its own, what it maps of the host, and command
 * buffers. */
#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/software_card.h"
#include "util/addresses.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

namespace gaudi::emu {

namespace {

/* Where the addresses of programs end. */
constexpr uint64_t user_address_end = uint64_t{1} << 47;

/* Have pages present and writable. @return Whether they are. */
bool populate(uint64_t start, uint64_t end)
{
    if (madvise(reinterpret_cast<void *>(start), end - start,
                MADV_POPULATE_WRITE) == 0) {
        return true;
    }
    /* EINVAL: a kernel without the advice, or a mapping without write access,
     * of which the former is the case if it knows none at all. */
    return (errno == EINVAL) &&
           (madvise(nullptr, 0, MADV_POPULATE_WRITE) != 0) &&
           (msync(reinterpret_cast<void *>(start), end - start, MS_ASYNC) == 0);
}

/* Pin pages as the driver of Linux 6.12 does: -EFAULT when the first one is not
 * there and writable, -ENOMEM when that is so of another one. (The driver of
 * Linux 6.1 says -EFAULT then, too.) */
int pin(void *host, uint64_t size)
{
    const auto address   = reinterpret_cast<uintptr_t>(host);
    const uint64_t start = address / host_page * host_page;
    const uint64_t end   = util::round_up(address + size, host_page);

    if (end > user_address_end) {
        return -EFAULT;
    }
    if (populate(start, end)) {
        return 0;
    }
    return populate(start, start + host_page) ? -ENOMEM : -EFAULT;
}

} // namespace

int software_card::allocate(uint64_t size, uint64_t page_size,
                            uint64_t &handle_p)
{
    card_lock lock(lock_);
    if (const int met = enter(faulty_call::allocate); met != 0) {
        return met;
    }
    if (size == 0) {
        return -EINVAL;
    }
    /* Who may not choose a page size is not asked for one. */
    if (get_settings().kind->user_page_size && (page_size != 0) &&
        (page_size != get_settings().dram_page)) {
        log("%s: pages of %lu bytes wanted, they have %lu", name_.c_str(),
            page_size, get_settings().dram_page);
        return -EINVAL;
    }
    handle_p = open_->memory.allocate(size);
    if (handle_p == 0) {
        log("%s: %lu bytes of device memory wanted, %lu free", name_.c_str(),
            size, open_->memory.free_bytes());
        return -ENOMEM;
    }
    ++open_->totals.allocations;
    open_->node.publish(open_->memory.free_bytes());
    return 0;
}

int software_card::free(uint64_t handle)
{
    card_lock lock(lock_);
    if (const int met = enter(faulty_call::free); met != 0) {
        return met;
    }
    const hbm_allocation *allocation = open_->memory.find(handle);
    if ((allocation == nullptr) || (allocation->mappings > 0)) {
        log("%s: free of handle %lu, which is %s", name_.c_str(), handle,
            (allocation == nullptr) ? "unknown" : "mapped");
        return -EINVAL;
    }
    if (get_settings().posted) {
        /* Nothing is on its way for that long. */
        flush_posted_writes(open_->memory.fd(), open_->memory.size());
    }
    open_->memory.free(handle);
    --open_->totals.allocations;
    open_->node.publish(open_->memory.free_bytes());
    return 0;
}

int software_card::map_device(uint64_t handle, uint64_t hint, uint64_t &va_p)
{
    card_lock lock(lock_);
    if (const int met = enter(faulty_call::map); met != 0) {
        return met;
    }
    hbm_allocation *allocation = open_->memory.find(handle);
    if (allocation == nullptr) {
        log("%s: map of unknown handle %lu", name_.c_str(), handle);
        return -EINVAL;
    }
    va_p = open_->table.map_device(handle, *allocation, hint);
    if (va_p == 0) {
        return -ENOMEM;
    }
    ++open_->totals.mappings;
    use_mmu(lock, 0, 0);
    return 0;
}

int software_card::map_host(void *host, uint64_t hint, bool force_hint,
                            uint64_t size, uint64_t &va_p)
{
    const auto address = reinterpret_cast<uintptr_t>(host);
    if ((size == 0) || (address + size < address) ||
        (address + size > UINT64_MAX - host_page)) {
        return -EINVAL;
    }
    int ret = begin(faulty_call::map);
    if (ret != 0) {
        return ret;
    }
    ret = pin(host, size);
    if (ret != 0) {
        log("%s: host memory %p of %lu bytes is not all there and writable",
            name_.c_str(), host, size);
        return ret;
    }

    card_lock lock(lock_);
    ret = enter();
    if (ret != 0) {
        return ret;
    }
    va_p = open_->table.map_host(host, size, hint, force_hint);
    if (va_p == 0) {
        return -ENOMEM;
    }
    ++open_->totals.mappings;
    ++open_->totals.host_maps;
    use_mmu(lock, 0, 0);
    return 0;
}

int software_card::unmap(uint64_t va)
{
    card_lock lock(lock_);
    if (const int met = enter(faulty_call::unmap); met != 0) {
        return met;
    }
    open_->queues.quiesce(lock);
    mmu_region *region = open_->table.find(va);
    for (const auto &entry : open_->buffers) {
        if (entry.second.va == va) {
            region = nullptr; /* the driver's own mapping */
        }
    }
    if (region == nullptr) {
        log("%s: unmap of %#lx, which no map call returned", name_.c_str(), va);
        return -EINVAL;
    }
    if ((region->kind == memory_kind::device) &&
        is_exported(open_->memory.fd(), va)) {
        log("%s: unmap of %#lx refused: a dma-buf of it is alive",
            name_.c_str(), va);
        return -EINVAL;
    }
    const uint64_t pages =
        (region->kind == memory_kind::imported) ? region->pages : 0;
    open_->table.unmap(va);
    --open_->totals.mappings;
    use_mmu(lock, open_->table.pages(), pages);
    return 0;
}

/* What the driver does for each page of an import, to map it and to unmap it,
 * beside others that are mapped. It holds a lock of the card meanwhile, for
 * which all other calls that map wait (mmu_lock in map_device_va and
 * unmap_device_va of common/memory.c). No page: only wait. */
void software_card::use_mmu(card_lock &lock, uint64_t others, uint64_t pages)
{
    const uint64_t passed = tables_passed(others, pages);
    open_->totals.import_pages += pages;
    open_->totals.import_tables += passed;
    const box_traffic *const timing = box_traffic::instance();
    if (timing == nullptr) {
        return;
    }
    const timing_figures &speed = timing->speed();
    const std::chrono::duration<double, std::micro> taken(
        speed.import_page * static_cast<double>(pages) +
        speed.import_table * static_cast<double>(passed));
    clock::time_point &free = open_->mmu_free_at;
    if (pages > 0) {
        free = std::max(free, clock::now()) +
               std::chrono::duration_cast<clock::duration>(taken);
    }
    const clock::time_point until = free;
    lock.unlock();
    std::this_thread::sleep_until(until);
}

int software_card::create_command_buffer(uint32_t size, bool mapped,
                                         uint64_t &handle_p)
{
    card_lock lock(lock_);
    if (const int state = enter(); state != 0) {
        return state;
    }
    if (size > max_command_buffer) {
        return -EINVAL;
    }
    const uint64_t bytes = std::max(host_page, util::round_up(size, host_page));
    const uint64_t handle = open_->next_buffer;
    if (!open_->node.resize(handle + bytes)) {
        return -ENOMEM;
    }
    command_buffer buffer;
    if (!buffer.data.map(open_->node.fd(), handle, bytes)) {
        return -ENOMEM;
    }
    /* The application has its own. */
    madvise(buffer.data.start(), bytes, MADV_DONTFORK);
    if (mapped) {
        buffer.va = open_->table.map_command_buffer(buffer.data.start(), bytes);
        if (buffer.va == 0) {
            return -ENOMEM;
        }
    }
    open_->next_buffer += bytes;
    open_->buffers.emplace(handle, std::move(buffer));
    handle_p = handle;
    return 0;
}

int software_card::destroy_command_buffer(uint64_t handle)
{
    card_lock lock(lock_);
    if (const int state = enter(); state != 0) {
        return state;
    }
    open_->queues.quiesce(lock);
    auto found = open_->buffers.find(handle);
    if (found == open_->buffers.end()) {
        return -EINVAL;
    }
    if (found->second.va != 0) {
        open_->table.unmap(found->second.va);
    }
    open_->buffers.erase(found);
    return 0;
}

int software_card::command_buffer_va(uint64_t handle, uint64_t &va_p)
{
    card_lock lock(lock_);
    if (const int state = enter(); state != 0) {
        return state;
    }
    auto found = open_->buffers.find(handle);
    if ((found == open_->buffers.end()) || (found->second.va == 0)) {
        return -EINVAL;
    }
    va_p = found->second.va;
    return 0;
}

int software_card::dram_usage(hlthunk_dram_usage_info &usage)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    usage.dram_free_mem = open_->memory.free_bytes();
    usage.ctx_dram_mem  = open_->memory.size() - usage.dram_free_mem;
    return 0;
}

} // namespace gaudi::emu
