/* SPDX-License-Identifier: BSD-3-Clause */
/* How submissions go: hl_wait_ioctl of command_submission.c. */
#include "hlthunk_emulator/driver/ioctl.h"

#include <cstdio>
#include <cstdlib>

namespace gaudi::emu::driver {

namespace {

int wait_otherwise(device_file file, uint32_t flags)
{
    if ((flags & wait_flag_multi) != 0) {
        return broken("wait-multiple", EPERM,
                      "accel%u: waiting for one of several submissions is for "
                      "Gaudi",
                      file.card);
    }
    /* No answer is better than a made-up one. */
    std::fprintf(stderr, "hlthunk-emu: wait flags %#x are not there\n", flags);
    std::abort();
}

} // namespace

int answer_wait(device_file file, wait_args &arguments)
{
    const wait_in &in = arguments.in;
    wait_out out{};
    if (in.flags != 0) {
        return wait_otherwise(file, in.flags);
    }
    const uint64_t seq = in.seq;
    const int ret = software_card::at(file.card).wait(seq, in.timeout_us, out);
    if ((ret == -EBUSY) || (ret == -ENODEV)) {
        return ret; /* the arguments stay as they are */
    }
    arguments     = {};
    arguments.out = out;
    return (ret == -EINVAL)
               ? broken("wait-for-future", EINVAL,
                        "accel%u: submission %lu has not been made", file.card,
                        seq)
               : ret;
}

} // namespace gaudi::emu::driver
