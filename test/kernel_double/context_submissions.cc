/* SPDX-License-Identifier: BSD-3-Clause */
/* Submissions of an open card, and how they end. */
#include "hlthunk_emulator/asic.h"
#include "kernel_double/device.h"
#include "kernel_double/rules.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>

extern "C" int hlthunk_cs_flush_pci_hbw_writes(int fd);

namespace gaudi::kernel_double {

namespace {

/* Of the last submission of a card's open node. The emulator counts as the
 * driver does; of one that it refuses it says no number. */
std::atomic<uint64_t> last_seq[emu::max_cards];

/* Where the driver says "again", the emulator waits. */
bool is_full(int fd, unsigned card)
{
    const uint64_t last = last_seq[card];
    uint32_t status     = completed;
    return (last >= max_in_flight) &&
           (hlthunk_wait_for_cs(fd, last + 1 - max_in_flight, 0, &status) ==
            0) &&
           (status == busy);
}

} // namespace

void begin_submissions(unsigned card)
{
    last_seq[card] = 0;
}

int submit(int fd, unsigned card, const submit_in &in, submit_out &out,
           bool &keep_p)
{
    const auto fail = [&](int error) {
        out        = {};
        out.seq    = UINT64_MAX;
        out.status = static_cast<uint32_t>(error);
        return error;
    };
    if (std::any_of(std::begin(in.pad), std::end(in.pad),
                    [](uint8_t byte) { return byte != 0; })) {
        return fail(broken("submission-padding", EINVAL, "pad"));
    }
    if (std::popcount(in.flags & cs_flags_of_other_types) > 1) {
        return fail(broken("submission-type", EINVAL, "flags %#x", in.flags));
    }
    if ((in.flags & cs_flag_flush) != 0) {
        return fail(hlthunk_cs_flush_pci_hbw_writes(fd));
    }
    if (is_full(fd, card)) {
        keep_p = true; /* for the next try */
        return broken("in-flight", EAGAIN, "%lu are unfinished", max_in_flight);
    }
    hlthunk_cs_in wanted{};
    hlthunk_cs_out given{};
    wanted.chunks_execute     = reinterpret_cast<void *>(in.execute);
    wanted.num_chunks_execute = in.num_execute;
    wanted.flags              = in.flags;
    const int ret             = hlthunk_command_submission(fd, &wanted, &given);
    if ((ret == -EINVAL) || (ret == -EFAULT) || (ret == -EPERM)) {
        return fail(broken("submission", -ret, "%u chunks, flags %#x",
                           in.num_execute, in.flags));
    }
    if (ret != 0) {
        return fail(ret);
    }
    last_seq[card] = given.seq;
    out.seq        = given.seq;
    out.status     = 0;
    return 0;
}

int wait(int fd, unsigned card, const wait_in &in, wait_out &out, bool &keep_p)
{
    if ((in.flags & wait_flag_multi) != 0) {
        return broken("wait-multiple", EPERM, "Gaudi2 cannot");
    }
    if (in.flags != 0) {
        std::fprintf(stderr, "kernel-double: wait flags %#x are not there\n",
                     in.flags);
        std::abort();
    }
    if (in.seq + max_in_flight <= last_seq[card]) {
        out.flags = wait_out_gone;
        return 0; /* completed, even if it was not */
    }
    const int ret = hlthunk_wait_for_cs(fd, in.seq, in.timeout_us, &out.status);
    keep_p        = (ret == -EBUSY) || (ret == -ENODEV);
    return (ret == -EINVAL) ? broken("wait-for-future", EINVAL, "%lu", in.seq)
                            : ret;
}

} // namespace gaudi::kernel_double
