#include "uct/gaudi/base/ucx/status.h"

#include "util/warning.h"

#include <cerrno>

namespace gaudi::base {

void warn_by_ucx()
{
    util::set_warning_handler([](const char *text) { ucs_warn("%s", text); });
}

ucs_status_t to_status(int result) noexcept
{
    switch (-result) {
    case 0:
        return UCS_OK;
    case EAGAIN:
        return UCS_ERR_NO_RESOURCE;
    case EBUSY:
        return UCS_ERR_BUSY;
    case ENOMEM:
        return UCS_ERR_NO_MEMORY;
    case EINVAL:
        return UCS_ERR_INVALID_PARAM;
    case EFAULT:
        return UCS_ERR_INVALID_ADDR;
    case ENODEV:
        return UCS_ERR_NO_DEVICE;
    case ESRCH: /* of a process */
        return UCS_ERR_ENDPOINT_TIMEOUT;
    case EPERM:
        return UCS_ERR_UNREACHABLE;
    case ENOTSUP:
        return UCS_ERR_UNSUPPORTED;
    case ETIMEDOUT:
        return UCS_ERR_TIMED_OUT;
    case EMSGSIZE:
        return UCS_ERR_EXCEEDS_LIMIT;
    default:
        return UCS_ERR_IO_ERROR;
    }
}

} // namespace gaudi::base
