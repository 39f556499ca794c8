/* Submitting, waiting, and the hooks for tests. */
#include "hlthunk_shim/emu/card.h"
#include "hlthunk_shim/emu/export.h"
#include "hlthunk_shim/emu/find_card.h"
#include "hlthunk_shim/emu/hlthunk_emu.h"

#include <cerrno>

using namespace gaudi::emu;

HLTHUNK_PUBLIC int hlthunk_command_submission(int fd, hlthunk_cs_in *in,
                                              hlthunk_cs_out *out)
{
    if ((in == nullptr) || (out == nullptr)) {
        return -EINVAL;
    }
    uint64_t seq  = 0;
    const int ret = on_compute(fd, [&](card &c) { return c.submit(*in, seq); });
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
    if (status == nullptr) {
        return -EINVAL;
    }
    return on_compute(
        fd, [&](card &c) { return c.wait(seq, timeout_us, *status); });
}

HLTHUNK_PUBLIC int hlthunk_wait_for_multi_cs(int fd, hlthunk_wait_multi_cs_in *,
                                             hlthunk_wait_multi_cs_out *)
{
    /* Gaudi1 only */
    return (find_compute(fd) == nullptr) ? why_no_card(fd) : -EPERM;
}

HLTHUNK_PUBLIC int hlthunk_emu_get_counters(int fd,
                                            hlthunk_emu_counters *counters)
{
    return on_compute(fd, [&](card &c) { return c.counters(*counters); });
}

HLTHUNK_PUBLIC int hlthunk_emu_pause(int fd, bool paused)
{
    return on_compute(fd, [&](card &c) { return c.pause(paused); });
}
