#include "uct/gaudi/base/transfer/remote_memory.h"

#include "uct/gaudi/base/ucx/status.h"
#include "util/host_copy.h"

#include <cerrno>
#include <cstring>

namespace gaudi::base {

/* That a process is gone is for its endpoints to say. */
ucs_status_t host_place::judge(int result, size_t length) const
{
    if (result == 0) {
        return UCS_OK;
    }
    ucs_log((result == -ESRCH) ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
            "gaudi: cannot copy %zu bytes at %#lx of process %d: %s", length,
            address_, process_->pid(), std::strerror(-result));
    /* Nothing that comes by waiting, as NO_RESOURCE would say. */
    return (result == -EAGAIN) ? UCS_ERR_IO_ERROR : to_status(result);
}

ucs_status_t host_place::read(void *to, size_t length) const
{
    if (process_ == nullptr) {
        util::copy_host_bytes(to, reinterpret_cast<void *>(address_), length);
        return UCS_OK;
    }
    return judge(process_->read(to, address_, length), length);
}

ucs_status_t host_place::write(const void *from, size_t length) const
{
    if (process_ == nullptr) {
        util::copy_host_bytes(reinterpret_cast<void *>(address_), from, length);
        return UCS_OK;
    }
    return judge(process_->write(address_, from, length), length);
}

} // namespace gaudi::base
