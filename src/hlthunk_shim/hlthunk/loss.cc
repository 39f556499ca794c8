#include "hlthunk_shim/hlthunk/loss.h"

#include "util/warning.h"

#include <cerrno>

namespace gaudi::shim {

void tell_loss(const card &lost, const char *how)
{
    if (lost.lose()) {
        util::warn("card %s was %s: what was in its memory is lost, and it "
                   "serves this process again only when all that use it have "
                   "closed it (UCX contexts, and the program itself)",
                   lost.bus_id().c_str(), how);
    }
}

int judge_failure(const card &asked, const library &lib, int result)
{
    const auto status = [&] {
        return (lib.hlthunk_get_device_status_info != nullptr)
                   ? lib.hlthunk_get_device_status_info(asked.fd())
                   : static_cast<int>(device_in_reset);
    };
    const auto tell = [&](int now) {
        tell_loss(asked, (now < 0) ? "removed" : "reset");
    };
    switch (result) {
    case -EBADF:
    case -ENOTTY:
        (void)asked.lose();
        return -ENODEV;
    case -ENODEV:
        tell(status());
        return -ENODEV;
    case -EBUSY: /* the driver's answer while a reset lasts */
    case -EIO:   /* a job was aborted, most of the time by a reset */
    case -ETIMEDOUT: {
        const int now = status();
        if ((now == device_operational) ||
            ((lib.hlthunk_get_device_status_info == nullptr) &&
             (result != -EBUSY))) {
            return result;
        }
        tell(now);
        return (result == -ETIMEDOUT) ? result : -ENODEV;
    }
    default:
        return result;
    }
}

} // namespace gaudi::shim
