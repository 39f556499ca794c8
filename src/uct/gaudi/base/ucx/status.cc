/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/status.h"

#include "util/warning.h"

#include <atomic>
#include <cerrno>

namespace gaudi::base {

constexpr struct {
    int error;
    ucs_status_t status;
} meanings[] = {
    {EAGAIN, UCS_ERR_NO_RESOURCE},
    {EBUSY, UCS_ERR_BUSY},
    {ENOMEM, UCS_ERR_NO_MEMORY},
    {EINVAL, UCS_ERR_INVALID_PARAM},
    {EFAULT, UCS_ERR_INVALID_ADDR},
    {ENODEV, UCS_ERR_NO_DEVICE},
    {ESRCH, UCS_ERR_ENDPOINT_TIMEOUT},       /* of a process */
    {EKEYREVOKED, UCS_ERR_CONNECTION_RESET}, /* of another process */
    {EPERM, UCS_ERR_UNREACHABLE},
    {ENOTSUP, UCS_ERR_UNSUPPORTED},
    {ETIMEDOUT, UCS_ERR_TIMED_OUT},
    {EMSGSIZE, UCS_ERR_EXCEEDS_LIMIT},
};

void warn_by_ucx()
{
    util::set_warning_handler([](const char *text) { ucs_warn("%s", text); });
}

ucs_status_t refuse_process() noexcept
{
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) {
        ucs_error("gaudi: this process was forked from one that had UCX or "
                  "cards open: it may only exec or exit");
    }
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t to_status(int result) noexcept
{
    if (result == 0) {
        return UCS_OK;
    }
    for (const auto &[error, status] : meanings) {
        if (error == -result) {
            return status;
        }
    }
    return UCS_ERR_IO_ERROR;
}

} // namespace gaudi::base
