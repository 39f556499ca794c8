/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/remote_memory.h"

#include "uct/gaudi/base/ucx/status.h"

#include <cerrno>
#include <cstring>

namespace gaudi::base {

/* That a process is gone is for its endpoints to say. */
static ucs_status_t judge(const util::process_memory &process, uint64_t address,
                          size_t length, int result)
{
    if (result == 0) {
        return UCS_OK;
    }
    ucs_log((result == -ESRCH) ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
            "gaudi: cannot copy %zu bytes at %#lx of process %d: %s", length,
            address, process.pid(), std::strerror(-result));
    /* Nothing that comes by waiting, as NO_RESOURCE would say. */
    return (result == -EAGAIN) ? UCS_ERR_IO_ERROR : to_status(result);
}

ucs_status_t read_host(const util::process_memory *process, uint64_t from,
                       void *to, size_t length)
{
    if (process == nullptr) {
        std::memmove(to, reinterpret_cast<void *>(from), length);
        return UCS_OK;
    }
    return judge(*process, from, length, process->read(to, from, length));
}

ucs_status_t write_host(const util::process_memory *process, uint64_t to,
                        const void *from, size_t length)
{
    if (process == nullptr) {
        std::memmove(reinterpret_cast<void *>(to), from, length);
        return UCS_OK;
    }
    return judge(*process, to, length, process->write(to, from, length));
}

} // namespace gaudi::base
