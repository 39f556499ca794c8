#include "uct/gaudi/base/memory/memory.h"

#include "util/process.h"

#include <cerrno>
#include <cstring>
#include <new>

namespace gaudi::base {

host_memory::host_memory(void *address, size_t length)
    : util::interval_node(reinterpret_cast<uintptr_t>(address), length),
      generation_(util::process_generation())
{}

host_memory::~host_memory()
{
    for (card_mapping *entry = mappings_.load(); entry != nullptr;) {
        card_mapping *next = entry->next;
        if (generation_ != util::process_generation()) {
            entry->mapping.release(); /* the parent's */
        }
        delete entry;
        entry = next;
    }
}

const host_memory::card_mapping *host_memory::find(unsigned slot) const
{
    const card_mapping *entry = mappings_.load(std::memory_order_acquire);
    while ((entry != nullptr) && (entry->slot != slot)) {
        entry = entry->next;
    }
    return entry;
}

int host_memory::va_on(const card &user, uint64_t &va_p)
{
    const card_mapping *entry = find(user.slot());
    if (entry == nullptr) {
        std::lock_guard<std::mutex> guard(lock_);
        entry = find(user.slot());
        if (entry == nullptr) {
            auto *fresh = new (std::nothrow) card_mapping();
            if (fresh == nullptr) {
                return -ENOMEM;
            }
            fresh->slot   = user.slot();
            fresh->result = shim::mapping::map_host(
                user.device(), reinterpret_cast<void *>(start), end - start,
                fresh->mapping);
            if (fresh->result != 0) {
                ucs_debug("%s: host memory %p of %lu bytes cannot be mapped "
                          "and is staged: %s",
                          user.name().c_str(), reinterpret_cast<void *>(start),
                          end - start, std::strerror(-fresh->result));
                refused_.store(true, std::memory_order_relaxed);
            }
            fresh->next = mappings_.load(std::memory_order_relaxed);
            mappings_.store(fresh, std::memory_order_release);
            entry = fresh;
        }
    }
    va_p = entry->mapping.va();
    return entry->result;
}

void retired_memory::add(host_memory &memory)
{
    if (!memory.drop()) {
        return; /* a transfer has it, and will unmap it */
    }
    host_memory *first = first_.load(std::memory_order_relaxed);
    do {
        memory.next_retired_ = first;
    } while (!first_.compare_exchange_weak(
        first, &memory, std::memory_order_release, std::memory_order_relaxed));
}

void retired_memory::unmap()
{
    host_memory *memory = first_.exchange(nullptr, std::memory_order_acquire);
    while (memory != nullptr) {
        host_memory *next = memory->next_retired_;
        delete memory;
        memory = next;
    }
}

} // namespace gaudi::base
