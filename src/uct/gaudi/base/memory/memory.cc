/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/memory.h"

#include "util/errors.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <unistd.h>

namespace gaudi::base {

int device_backing::va_on(const card &user, uint64_t address, size_t length,
                          uint64_t &va_p)
{
    const kept_window window = peers_.find(address, length);
    if (window == nullptr) {
        return -EFAULT;
    }
    const auto import =
        [&](shim::registration &mapping) -> card_mappings::answer {
        const std::lock_guard<std::mutex> guard(lock_);
        int fd  = -1;
        int ret = owner.device().export_dmabuf(va, window->start - va,
                                               window->size(), fd);
        if (ret == 0) {
            ret = user.device().import_dmabuf(fd, window->size(), mapping);
            close(fd); /* the import keeps what it needs */
        }
        if (ret != 0) {
            ucs_debug("%s cannot import %lu bytes at %#lx of %s: %s",
                      user.name().c_str(), window->size(), window->start,
                      owner.name().c_str(), std::strerror(-ret));
        }
        return {ret, !util::may_pass(-ret)};
    };
    uint64_t first  = 0;
    const int error = window->imports.va_on(user, import, first);
    va_p            = first + (address - window->start);
    return error;
}

bool device_backing::forget_peers()
{
    std::lock_guard<std::mutex> guard(lock_);
    const bool shared = (export_ != nullptr);
    export_.reset();
    while (peers_.take_one() != nullptr) {}
    return shared;
}

int host_memory::va_on(const card &user, uint64_t &va_p)
{
    const auto map = [&](shim::registration &mapping) -> card_mappings::answer {
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
        return {ret, true};
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
