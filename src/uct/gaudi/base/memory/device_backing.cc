#include "uct/gaudi/base/memory/device_backing.h"

#include "hlthunk_shim/hlthunk/dmabuf.h"
#include "uct/gaudi/base/ucx/status.h"

#include <cerrno>
#include <cstring>

#include <unistd.h>

namespace gaudi::base {

const device_backing::peer *device_backing::find(unsigned slot) const
{
    const peer *entry = peers_.load(std::memory_order_acquire);
    while ((entry != nullptr) && (entry->slot != slot)) {
        entry = entry->next.get();
    }
    return entry;
}

int device_backing::va_on(const card &user, uint64_t &va_p)
{
    const peer *entry = find(user.slot());
    if (entry == nullptr) {
        std::lock_guard<std::mutex> guard(lock_);
        entry = find(user.slot());
        if (entry == nullptr) {
            auto made  = std::make_unique<peer>();
            made->slot = user.slot();
            int fd     = -1;
            int ret    = shim::export_dmabuf(owner.device(), va, 0, size, fd);
            if (ret == 0) {
                ret = shim::mapping::import_dmabuf(user.device(), fd, size,
                                                   made->mapping);
                close(fd); /* the import keeps what it needs */
            }
            if (ret != 0) {
                ucs_debug("%s cannot import %lu bytes at %#lx of %s: %s",
                          user.name().c_str(), size, va, owner.name().c_str(),
                          std::strerror(-ret));
            }
            if (is_room_lacking(-ret) || (ret == -EBUSY) || (ret == -EAGAIN)) {
                return ret; /* may pass */
            }
            made->refused = ret;
            made->next    = std::move(owned_);
            owned_        = std::move(made);
            entry         = owned_.get();
            peers_.store(entry, std::memory_order_release);
        }
    }
    va_p = entry->mapping.va();
    return entry->refused;
}

bool device_backing::forget_peers()
{
    std::lock_guard<std::mutex> guard(lock_);
    const bool shared = (export_ != nullptr);
    export_.reset();
    peers_.store(nullptr);
    owned_.reset();
    return shared;
}

} // namespace gaudi::base
