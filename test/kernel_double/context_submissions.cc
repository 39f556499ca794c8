/* SPDX-License-Identifier: BSD-3-Clause */
/* Submissions of an open card, and how they end. */
#include "kernel_double/device.h"
#include "kernel_double/rules.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <mutex>

namespace gaudi::kernel_double {

namespace {

bool is_in(const address_range &range, uint64_t address, uint64_t bytes)
{
    return (address >= range.start) && (address < range.end) &&
           (bytes <= range.end - address);
}

/* Gaudi2 has more queues, which move no data, and enables these for programs:
 * PDMA_0 streams 0 and 1, PDMA_1 stream 0, the EDMA engines that are there. */
bool is_enabled(uint32_t queue, uint32_t edma_mask)
{
    if ((queue == 0) || (queue == 1) || (queue == 4)) {
        return true;
    }
    for (size_t i = 0; i < std::size(edma_queues); ++i) {
        if ((queue >= edma_queues[i]) &&
            (queue < edma_queues[i] + streams_of_engine)) {
            return ((edma_mask >> i) & 1) != 0;
        }
    }
    return false;
}

} // namespace

int context::check(const chunk &one) const
{
    if (one.queue_index >= queue_cpu) {
        return broken("queue-number", EINVAL, "queue %u", one.queue_index);
    }
    if ((one.flags & chunk_flag_user_cb) == 0) {
        return broken("user-command-buffer", EINVAL, "chunk flags %#x",
                      one.flags);
    }
    if (!is_enabled(one.queue_index, info_.edma_enabled_mask)) {
        return broken("queue-enabled", EINVAL, "queue %u", one.queue_index);
    }
    const address_range ranges[] = {
        {info_.sram_base_address, info_.sram_base_address + info_.sram_size},
        {dram_physical_base + info_.dram_page_size,
         dram_physical_base + info_.dram_page_size + info_.dram_size},
        {info_.dram_base_address, device_va_end},
        host_range,
        host_huge_range,
    };
    for (const address_range &range : ranges) {
        if ((one.cb_size > 0) && is_in(range, one.cb_handle, one.cb_size)) {
            return 0;
        }
    }
    return broken("command-buffer-range", EFAULT, "%u bytes at %#lx",
                  one.cb_size, one.cb_handle);
}

int context::submit(int fd, const submit_in &in, submit_out &out, bool &keep_p)
{
    const std::lock_guard<util::child_mutex> guard(lock_);
    const auto fail = [&](int error) {
        out        = {};
        out.seq    = UINT64_MAX;
        out.status = static_cast<uint32_t>(error);
        return error;
    };
    const uint32_t type = in.flags & cs_flags_of_other_types;

    if (std::any_of(std::begin(in.pad), std::end(in.pad),
                    [](uint8_t byte) { return byte != 0; })) {
        return fail(broken("submission-padding", EINVAL, "pad"));
    }
    if ((in.flags & cs_flag_staged) != 0) {
        return fail(broken("staged", EPERM, "flags %#x", in.flags));
    }
    if (std::popcount(type) > 1) {
        return fail(broken("submission-type", EINVAL, "flags %#x", in.flags));
    }
    if (type != 0) {
        std::fprintf(stderr,
                     "kernel-double: submissions with flags %#x are not "
                     "there\n",
                     in.flags);
        std::abort();
    }
    if ((in.num_execute == 0) || (in.num_execute > max_chunks)) {
        return fail(broken("chunks", EINVAL, "%u chunks", in.num_execute));
    }
    if (in.execute == 0) {
        return fail(broken("chunk-array", EFAULT, "no array"));
    }

    /* The arguments stay as they are, for the next try. */
    job &slot       = jobs_[next_seq_ % max_in_flight];
    uint32_t status = completed;
    if ((slot.of_emulator != 0) &&
        (hlthunk_wait_for_cs(fd, slot.of_emulator, 0, &status) == 0) &&
        (status == busy)) {
        keep_p = true;
        return broken("in-flight", EAGAIN, "%lu are unfinished", max_in_flight);
    }

    /* Whatever becomes of it, it has its number. */
    const uint64_t seq = next_seq_++;
    slot               = {seq, 0};
    if (info_.device_id == 0) {
        (void)hlthunk_get_hw_ip_info(fd, &info_);
    }
    const auto *chunks = reinterpret_cast<const chunk *>(in.execute);
    for (uint32_t i = 0; i < in.num_execute; ++i) {
        const int ret = check(chunks[i]);
        if (ret != 0) {
            return fail(ret);
        }
    }

    hlthunk_cs_in wanted{};
    hlthunk_cs_out given{};
    wanted.chunks_execute     = reinterpret_cast<void *>(in.execute);
    wanted.num_chunks_execute = in.num_execute;
    const int ret             = hlthunk_command_submission(fd, &wanted, &given);
    if (ret != 0) {
        return fail(ret);
    }
    slot.of_emulator = given.seq;
    out.seq          = seq;
    out.status       = 0;
    return 0;
}

int context::wait(int fd, const wait_in &in, wait_out &out, bool &keep_p)
{
    uint64_t of_emulator = 0;
    if ((in.flags & wait_flag_multi) != 0) {
        return broken("wait-multiple", EPERM, "Gaudi2 cannot");
    }
    if (in.flags != 0) {
        std::fprintf(stderr, "kernel-double: wait flags %#x are not there\n",
                     in.flags);
        std::abort();
    }
    {
        const std::lock_guard<util::child_mutex> guard(lock_);
        if (in.seq >= next_seq_) {
            return broken("wait-for-future", EINVAL, "%lu of %lu", in.seq,
                          next_seq_ - 1);
        }
        if (in.seq + max_in_flight < next_seq_) {
            out.flags = wait_out_gone;
            return 0; /* completed, even if it was not */
        }
        const job &slot = jobs_[in.seq % max_in_flight];
        of_emulator     = (slot.seq == in.seq) ? slot.of_emulator : 0;
    }
    if (of_emulator == 0) {
        return 0; /* refused, so nothing of it is left to be done */
    }
    const int ret =
        hlthunk_wait_for_cs(fd, of_emulator, in.timeout_us, &out.status);
    keep_p = (ret == -EBUSY) || (ret == -ENODEV);
    return ret;
}

} // namespace gaudi::kernel_double
