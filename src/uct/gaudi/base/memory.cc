#include "uct/gaudi/base/memory.h"

#include <cstring>

namespace gaudi::base {

host_memory::host_memory(void *address, size_t length, size_t cards)
    : interval_node(reinterpret_cast<uintptr_t>(address), length),
      mappings_(cards)
{}

int host_memory::va_on(const card &user, uint64_t &va_p)
{
    card_mapping &entry = mappings_[user.slot()];

    va_p = entry.va.load(std::memory_order_acquire);
    if (va_p != 0) {
        return 0;
    }
    if (entry.refused.load(std::memory_order_acquire) != 0) {
        return entry.refused.load(std::memory_order_relaxed);
    }
    std::lock_guard<std::mutex> guard(lock_);
    if (entry.mapping.va() == 0) {
        int ret = shim::mapping::map_host(user.device(),
                                          reinterpret_cast<void *>(start),
                                          end - start, entry.mapping);
        if (ret != 0) {
            ucs_debug("%s: host memory %p of %lu bytes cannot be mapped and is "
                      "staged: %s",
                      user.name().c_str(), reinterpret_cast<void *>(start),
                      end - start, std::strerror(-ret));
            entry.refused.store(ret, std::memory_order_release);
            return ret;
        }
    }
    va_p = entry.mapping.va();
    entry.va.store(va_p, std::memory_order_release);
    return 0;
}

void host_memory::put()
{
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        delete this;
    }
}

} // namespace gaudi::base
