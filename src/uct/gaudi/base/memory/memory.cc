/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/memory.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace gaudi::base {

int host_memory::va_on(const card &user, uint64_t &va_p)
{
    const auto map = [&](shim::registration &mapping) {
        auto *first              = reinterpret_cast<void *>(start);
        const shim::card &device = user.device();
        const int ret =
            is_staging_ ? device.register_staging(first, end - start, mapping)
                        : device.register_host(first, end - start, mapping);
        if (ret != 0) {
            ucs_debug("%s: host memory %p of %lu bytes cannot be mapped "
                      "and is staged: %s",
                      user.name().c_str(), first, end - start,
                      std::strerror(-ret));
            /* A card that pins none of the application's memory will not do so
             * next time. */
            if (ret != -EOPNOTSUPP) {
                refused_.store(true, std::memory_order_relaxed);
            }
        }
        return ret;
    };
    return mappings_.va_on(user, map, va_p);
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

void retired_memory::unmap_all()
{
    host_memory *memory = first_.exchange(nullptr, std::memory_order_acquire);
    while (memory != nullptr) {
        host_memory *next = memory->next_retired_;
        delete memory;
        memory = next;
    }
}

} // namespace gaudi::base
