#include "uct/gaudi/base/memory/device_backing.h"

#include "uct/gaudi/base/ucx/ucx.h"
#include "util/errors.h"

#include <cstring>

#include <unistd.h>

namespace gaudi::base {

int device_backing::va_on(const card &user, uint64_t &va_p)
{
    const auto import =
        [&](shim::registration &mapping) -> card_mappings::answer {
        int fd  = -1;
        int ret = owner.driver().export_dmabuf(va, 0, size, fd);
        if (ret == 0) {
            ret = user.driver().import_dmabuf(fd, size, mapping);
            close(fd); /* the import keeps what it needs */
        }
        if (ret != 0) {
            ucs_debug("%s cannot import %lu bytes at %#lx of %s: %s",
                      user.name().c_str(), size, va, owner.name().c_str(),
                      std::strerror(-ret));
        }
        return {ret, !util::may_pass(-ret)};
    };
    return peers_.va_on(user, lock_, import, va_p);
}

bool device_backing::forget_peers()
{
    std::lock_guard<std::mutex> guard(lock_);
    const bool shared = (export_ != nullptr);
    export_.reset();
    (void)peers_.take();
    return shared;
}

} // namespace gaudi::base
