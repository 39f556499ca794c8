/* The part of the device table that deals with the device memory that the
 * application maps. */
#include "uct/gaudi/base/memory/device_table.h"
#include "uct/gaudi/base/ucx/memory_events.h"

namespace gaudi::base {

void device_table::application_allocated(int fd, uint64_t handle, uint64_t size)
{
    shim::node_identity node;
    if (shim::identify(fd, node)) {
        application_.add_allocation(node, fd, handle, size);
    }
}

void device_table::application_freed(int fd, uint64_t handle)
{
    shim::node_identity node;
    if (shim::identify(fd, node)) {
        application_.remove_allocation(node, handle);
    }
}

void device_table::application_mapped(int fd, uint64_t handle, uint64_t va)
{
    auto memory = std::make_unique<application_memory>();
    if (!shim::identify(fd, memory->node)) {
        return;
    }
    /* One that was allocated unseen is among what its card has unseen. */
    const uint64_t size = application_.size_of(memory->node, handle);
    ucs_debug("gaudi: the application mapped %lu bytes of file descriptor %d "
              "at %#lx",
              size, fd, va);
    if (size == 0) {
        return;
    }
    memory->fd             = fd;
    memory->of_application = true;
    memory->start          = va;
    memory->end            = va + size;
    application_.add(std::move(memory), [&](application_memory &added) {
        claim(added);
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        device_memory_.insert(added);
        ++of_application_;
    });
    announce_allocation(reinterpret_cast<void *>(va), size);
}

/* Note whose memory it is, if that card is used. Under the mutex of the
 * registry. */
void device_table::claim(application_memory &memory)
{
    for (const auto &candidate : cards()) {
        if ((states_[candidate->slot()].node != memory.node) ||
            candidate->is_lost()) {
            continue;
        }
        const uint64_t page = std::max<uint64_t>(
            candidate->driver().capabilities().page_bytes, 1);
        const uint64_t size = memory.end - memory.start;
        memory.whole        = std::make_unique<device_backing>(
            *candidate, memory.start, (size + page - 1) / page * page);
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        memory.owner   = candidate.get();
        memory.backing = memory.whole.get();
        return;
    }
}

std::unique_ptr<application_memory>
device_table::application_unmapping(int fd, uint64_t va)
{
    shim::node_identity node;
    if (!shim::identify(fd, node)) {
        return nullptr;
    }
    auto memory = application_.take(node, va);
    if (memory != nullptr) {
        {
            std::lock_guard<util::rw_spinlock> guard(memory_lock_);
            device_memory_.erase(*memory);
            --of_application_;
        }
        if (memory->whole != nullptr) {
            memory->was_shared = memory->whole->forget_peers();
        }
        announce_gone(memory->start, memory->end);
    }
    return memory;
}

void device_table::application_unmapped(
    std::unique_ptr<application_memory> memory, bool done)
{
    if (done) {
        end(*memory.release());
        return;
    }
    void *address       = reinterpret_cast<void *>(memory->start);
    const size_t length = memory->end - memory->start;
    application_.add(std::move(memory), [&](application_memory &added) {
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        device_memory_.insert(added);
        ++of_application_;
    });
    announce_allocation(address, length);
}

void device_table::drop_all(const application_registry::selection &which,
                            announcements &news,
                            std::vector<uint64_t> *handles_p)
{
    for (auto &memory : application_.take_all(which, handles_p)) {
        drop(std::move(memory), news);
    }
}

void device_table::drop(std::unique_ptr<application_memory> memory,
                        announcements &news)
{
    {
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        device_memory_.erase(*memory);
        --of_application_;
    }
    if (memory->whole != nullptr) {
        (void)memory->whole->forget_peers();
    }
    news.gone.emplace_back(memory->start, memory->end);
    end(*memory.release());
}

} // namespace gaudi::base
