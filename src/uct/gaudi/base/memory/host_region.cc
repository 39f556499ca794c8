/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/host_region.h"

#include <cerrno>
#include <cstring>
#include <new>

namespace gaudi::base {

int host_region::va_on(const card &user, uint64_t &va_p)
{
    const mapping *known = find(user);
    if (ucs_unlikely(known == nullptr)) {
        known = map(user);
        if (known == nullptr) {
            return -ENOMEM;
        }
    }
    va_p = known->memory.address();
    return known->result;
}

const host_region::mapping *host_region::map(const card &user)
{
    const std::lock_guard<std::mutex> guard(mapping_lock_);
    if (const mapping *known = find(user)) {
        return known;
    }
    std::unique_ptr<mapping> made(new (std::nothrow) mapping);
    if (made == nullptr) {
        return nullptr;
    }
    auto *memory             = reinterpret_cast<void *>(start);
    const shim::card &device = user.device();
    made->user               = &user;
    made->cards              = user.hold();
    made->result =
        (kind_ == kind::staging)
            ? device.register_staging(memory, end - start, made->memory)
            : device.register_host(memory, end - start, made->memory);
    if (made->result != 0) {
        ucs_debug("%s: host memory %p of %lu bytes cannot be mapped and is "
                  "staged: %s",
                  user.name().c_str(), memory, end - start,
                  std::strerror(-made->result));
        /* A card that pins no memory of applications never will. */
        if (made->result != -EOPNOTSUPP) {
            refused_.store(true, std::memory_order_relaxed);
        }
    }
    made->next.reset(first_.load(std::memory_order_relaxed));
    first_.store(made.get(), std::memory_order_release);
    return made.release();
}

} // namespace gaudi::base
