/* Submitting, waiting, and the hooks for tests. */
#include "hlthunk_shim/emu/card.h"
#include "hlthunk_shim/emu/export.h"
#include "hlthunk_shim/emu/hlthunk_emu.h"
#include "hlthunk_shim/emu/nodes.h"

#include <cerrno>

using namespace gaudi::emu;

HLTHUNK_PUBLIC int hlthunk_command_submission(int fd, hlthunk_cs_in *in,
                                              hlthunk_cs_out *out)
{
    card *compute = find_compute(fd);
    if ((in == nullptr) || (out == nullptr)) {
        return -EINVAL;
    }
    if (compute == nullptr) {
        return -EBADF;
    }
    uint64_t seq = 0;
    int ret      = compute->submit(*in, seq);
    if (ret == 0) {
        out->seq    = seq;
        out->status = 0;
    }
    return ret;
}

HLTHUNK_PUBLIC int hlthunk_command_submission_timeout(int fd, hlthunk_cs_in *in,
                                                      hlthunk_cs_out *out,
                                                      uint32_t /* seconds */)
{
    return hlthunk_command_submission(fd, in, out);
}

HLTHUNK_PUBLIC int hlthunk_wait_for_cs(int fd, uint64_t seq,
                                       uint64_t timeout_us, uint32_t *status)
{
    card *compute = find_compute(fd);
    if (status == nullptr) {
        return -EINVAL;
    }
    return (compute == nullptr) ? -EBADF
                                : compute->wait(seq, timeout_us, *status);
}

HLTHUNK_PUBLIC int hlthunk_wait_for_multi_cs(int fd, hlthunk_wait_multi_cs_in *,
                                             hlthunk_wait_multi_cs_out *)
{
    /* Gaudi1 only */
    return (find_compute(fd) == nullptr) ? -EBADF : -EPERM;
}

HLTHUNK_PUBLIC int hlthunk_emu_get_counters(int fd,
                                            hlthunk_emu_counters *counters)
{
    card *compute = find_compute(fd);
    return (compute == nullptr) ? -EBADF : compute->counters(*counters);
}

HLTHUNK_PUBLIC int hlthunk_emu_pause(int fd, bool paused)
{
    card *compute = find_compute(fd);
    return (compute == nullptr) ? -EBADF : compute->pause(paused);
}
