#include "hlthunk_shim/emu/card.h"

#include "hlthunk_shim/emu/asic.h"
#include "hlthunk_shim/emu/box.h"
#include "hlthunk_shim/emu/dmabuf.h"
#include "hlthunk_shim/emu/engine_threads.h"
#include "hlthunk_shim/emu/fork.h"
#include "hlthunk_shim/emu/nodes.h"
#include "hlthunk_shim/emu/settings.h"
#include "hlthunk_shim/emu/sysfs_view.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

namespace gaudi::emu {

namespace {

/* Pin pages as the driver does: all present and writable, or -EFAULT. */
int pin(void *host, uint64_t size)
{
    const auto address   = reinterpret_cast<uintptr_t>(host);
    const uint64_t start = address / host_page * host_page;
    const uint64_t end =
        (address + size + host_page - 1) / host_page * host_page;

    if (madvise(reinterpret_cast<void *>(start), end - start,
                MADV_POPULATE_WRITE) == 0) {
        return 0;
    }
    /* EINVAL: a kernel without the advice, or a mapping without write access,
     * of which the former is the case if it knows none at all. */
    if ((errno == EINVAL) && (madvise(nullptr, 0, MADV_POPULATE_WRITE) != 0)) {
        return (msync(reinterpret_cast<void *>(start), end - start, MS_ASYNC) ==
                0)
                   ? 0
                   : -EFAULT;
    }
    return -EFAULT;
}

} // namespace

card::card(unsigned index)
    : index_(index), name_("accel" + std::to_string(index)),
      resets_(get_settings().resets[index])
{}

card &card::at(unsigned index)
{
    /* Never destroyed: engine threads may outlive static destructors. */
    static auto *cards = [] {
        auto *result = new std::array<card *, max_cards>;
        for (unsigned i = 0; i < max_cards; ++i) {
            (*result)[i] = new card(i);
        }
        return result;
    }();
    return *(*cards)[index];
}

card::context::~context()
{
    for (const auto &entry : buffers) {
        munmap(entry.second.data, entry.second.size);
    }
    if (holder >= 0) {
        ::close(holder);
    }
}

void card::release(card_lock &lock)
{
    open_->queues.stop(lock);
    /* For copies of the node that live on. */
    open_->node.publish(open_->memory.size());
    last_period_  = clock::now() - open_->opened_at;
    for_children_ = {};
    open_.reset();
}

/* Close a card that the application closed with close(2), and not through us.
 */
void card::drop_stale(card_lock &lock)
{
    if ((open_ == nullptr) || open_->node.id().is_current()) {
        return;
    }
    if (find_known_compute(open_->node.fd()) == this) {
        remove_node(open_->node.fd()); /* the number is another file's now */
    }
    if (!go_on_with_duplicate()) {
        release(lock);
    }
}

/* The descriptor is gone, but perhaps not the last one of the node. */
bool card::go_on_with_duplicate()
{
    std::erase_if(open_->duplicates, [&](int fd) {
        const bool stale = !open_->node.id().is_same(fd);
        if (stale && (find_known_compute(fd) == this)) {
            remove_node(fd);
        }
        return stale;
    });
    const int duplicate = open_->node.id().find_duplicate();
    if ((duplicate < 0) || !add_node(duplicate, *this, false)) {
        return false;
    }
    open_->node.move_to(duplicate);
    show_children();
    return true;
}

bool card::recognize(int fd)
{
    const card_lock lock(lock_);
    if ((open_ != nullptr) && open_->node.id().is_same(fd)) {
        open_->duplicates.push_back(fd);
        return add_node(fd, *this, false);
    }
    if (is_inherited(fd)) {
        add_inherited_node(fd, *this);
        return true;
    }
    return false;
}

int card::open()
{
    prepare_for_fork();

    card_lock lock(lock_);
    /* The driver asks for this first, and tells who has the card afterwards. */
    if (resets_ > 0) {
        --resets_;
        log("%s: in reset", name_.c_str());
        return -EAGAIN;
    }
    drop_stale(lock);
    if (open_ != nullptr) {
        return -EBUSY;
    }
    if (inherited_.holder.fd >= 0) {
        if (inherited_.node.is_current()) {
            log("%s: open in the process that forked this one", name_.c_str());
            return -EBUSY;
        }
        drop_inherited();
    }

    const int holder = take_card(index_);
    if (holder < 0) {
        log("%s: taken by another process", name_.c_str());
        return holder;
    }
    const uint64_t size = get_settings().hbm / dram_page * dram_page;
    completed_.clear(); /* the numbers begin anew */
    auto opened    = std::make_unique<context>(size, completed_, name_.c_str());
    opened->holder = holder;

    int ret = opened->memory.create(size, numa_node_of(index_));
    if (ret != 0) {
        return ret;
    }
    ret = opened->node.create(index_);
    if (ret != 0) {
        return ret;
    }
    opened->node.publish(size);
    open_ = std::move(opened);
    show_children();
    ++opens_;
    return open_->node.fd();
}

int card::close(int fd)
{
    card_lock lock(lock_);
    if ((open_ == nullptr) || !open_->node.id().is_same(fd)) {
        return -EBADF;
    }
    if ((open_->node.fd() == fd) && !go_on_with_duplicate()) {
        release(lock);
    }
    return (::close(fd) == 0) ? 0 : -errno;
}

int card::allocate(uint64_t size, uint64_t &handle_p)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    if (size == 0) {
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

int card::free(uint64_t handle)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    const hbm_allocation *allocation = open_->memory.find(handle);
    if ((allocation == nullptr) || (allocation->mappings > 0)) {
        log("%s: free of handle %lu, which is %s", name_.c_str(), handle,
            (allocation == nullptr) ? "unknown" : "mapped");
        return -EINVAL;
    }
    open_->memory.free(handle);
    --open_->totals.allocations;
    open_->node.publish(open_->memory.free_bytes());
    return 0;
}

int card::map_device(uint64_t handle, uint64_t hint, uint64_t &va_p)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
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
    return 0;
}

int card::map_host(void *host, uint64_t size, uint64_t &va_p)
{
    const auto address = reinterpret_cast<uintptr_t>(host);
    if ((size == 0) || (address + size < address)) {
        return -EINVAL;
    }
    int ret = pin(host, size);
    if (ret != 0) {
        log("%s: host memory %p of %lu bytes is not all there and writable",
            name_.c_str(), host, size);
        return ret;
    }

    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    va_p = open_->table.map_host(host, size);
    if (va_p == 0) {
        return -ENOMEM;
    }
    ++open_->totals.mappings;
    ++open_->totals.host_maps;
    return 0;
}

int card::unmap(uint64_t va)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
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
    open_->table.unmap(va);
    --open_->totals.mappings;
    return 0;
}

int card::export_dmabuf(uint64_t va, uint64_t size, uint64_t offset)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
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
    return create_dmabuf(open_->memory.fd(), open_->holder, va, runs);
}

int card::import_dmabuf(int fd, uint64_t size, uint64_t &va_p)
{
    imported_memory memory;
    const int ret = imported_memory::create(fd, size, memory);
    if (ret != 0) {
        log("%s: import of file descriptor %d with %lu bytes: %s",
            name_.c_str(), fd, size,
            (ret == -EINVAL) ? "no dma-buf, or another size"
                             : std::strerror(-ret));
        return ret;
    }

    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    va_p = open_->table.map_import(std::move(memory), size);
    if (va_p == 0) {
        return -ENOMEM;
    }
    ++open_->totals.mappings;
    return 0;
}

int card::create_command_buffer(uint32_t size, bool mapped, uint64_t &handle_p)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    if (size > max_command_buffer) {
        return -EINVAL;
    }
    const uint64_t bytes = std::max<uint64_t>(
        host_page, (size + host_page - 1) / host_page * host_page);
    const uint64_t handle = open_->next_buffer;
    if (!open_->node.resize(handle + bytes)) {
        return -ENOMEM;
    }
    void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                      open_->node.fd(), static_cast<off_t>(handle));
    if (data == MAP_FAILED) {
        return -ENOMEM;
    }
    madvise(data, bytes, MADV_DONTFORK); /* the application has its own */
    command_buffer buffer{bytes, static_cast<char *>(data), 0};
    if (mapped) {
        buffer.va = open_->table.map_host(data, bytes);
        if (buffer.va == 0) {
            munmap(data, bytes);
            return -ENOMEM;
        }
    }
    open_->next_buffer += bytes;
    open_->buffers.emplace(handle, buffer);
    handle_p = handle;
    return 0;
}

int card::destroy_command_buffer(uint64_t handle)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    open_->queues.quiesce(lock);
    auto found = open_->buffers.find(handle);
    if (found == open_->buffers.end()) {
        return -EINVAL;
    }
    if (found->second.va != 0) {
        open_->table.unmap(found->second.va);
    }
    munmap(found->second.data, found->second.size);
    open_->buffers.erase(found);
    return 0;
}

int card::command_buffer_va(uint64_t handle, uint64_t &va_p)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    auto found = open_->buffers.find(handle);
    if ((found == open_->buffers.end()) || (found->second.va == 0)) {
        return -EINVAL;
    }
    va_p = found->second.va;
    return 0;
}

int card::submit(const hlthunk_cs_in &in, uint64_t &seq_p)
{
    bool waiting_work = false;
    int ret           = 0;
    {
        card_lock lock(lock_);
        if (open_ == nullptr) {
            return -EBADF;
        }
        ret          = open_->queues.submit(lock, in, seq_p);
        waiting_work = open_->queues.has_work();
    }
    if (waiting_work) {
        engine_threads::instance().kick(*this);
    }
    return ret;
}

int card::wait(uint64_t seq, uint64_t timeout_us, uint32_t &status_p)
{
    if ((seq != 0) && completed_.has(seq)) {
        status_p = shim::cs_completed;
        return 0;
    }
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    ++polls_;
    return open_->queues.wait(lock, seq, timeout_us, status_p);
}

int card::dram_usage(hlthunk_dram_usage_info &usage)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    usage.dram_free_mem = open_->memory.free_bytes();
    usage.ctx_dram_mem  = open_->memory.size() - usage.dram_free_mem;
    return 0;
}

int card::counters(hlthunk_emu_counters &counters_p)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    counters_p = open_->totals;
    return 0;
}

int card::pause(bool paused)
{
    {
        card_lock lock(lock_);
        if (open_ == nullptr) {
            return -EBADF;
        }
        open_->queues.pause(paused);
    }
    if (!paused) {
        engine_threads::instance().kick(*this);
    }
    return 0;
}

bool card::run_unattended()
{
    card_lock lock(lock_);
    /* Not has_work(): what a poller copies now may lead to more. */
    if ((open_ == nullptr) || open_->queues.is_idle()) {
        return false;
    }
    /* A slice releases the lock, and the card may be closed meanwhile. */
    while ((polls_ == polls_seen_) && (open_ != nullptr) &&
           open_->queues.run_slice(lock)) {}
    polls_seen_ = polls_;
    return true;
}

} // namespace gaudi::emu
