/* SPDX-License-Identifier: BSD-3-Clause */
/* Submissions: hl_cs_ioctl of command_submission.c. */
#include "hlthunk_emulator/driver/ioctl.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/settings.h"

#include <bit>

namespace gaudi::emu::driver {

namespace {

using context = software_card::context;

/* hl_cs_sanity_checks. Flags that the driver does not know it ignores, and
 * restore chunks where nothing forces them. */
int check(const context &card, const submit_in &in)
{
    const char *const name = card.name;
    if (in.pad != 0) {
        return broken("submission-padding", EINVAL,
                      "%s: the padding of a submission is not zero", name);
    }
    if ((in.flags & cs_flags_staged) != 0) {
        return broken("submission", EPERM,
                      "%s: staged submissions are for Gaudi", name);
    }
    const uint32_t types = in.flags & cs_flags_of_other_types;
    if (std::popcount(types) > 1) {
        return broken("submission-type", EINVAL,
                      "%s: submission flags %#x are of several types", name,
                      in.flags);
    }
    if (((types & ~cs_flag_flush) != 0) ||
        ((in.flags & cs_flag_force_restore) != 0)) {
        return broken("submission", EINVAL,
                      "%s: submission flags %#x are not emulated", name,
                      in.flags & (types | cs_flag_force_restore));
    }
    return 0;
}

int check_chunks(const context &card, const hl_cs_chunk *chunks, uint32_t count)
{
    const settings &is = card.is;
    if (!is.kind->user_queues) {
        return broken("submission", EINVAL, "%s: %s has no queues for programs",
                      card.name, is.kind->device_type.c_str());
    }
    for (uint32_t i = 0; i < count; ++i) {
        const hl_cs_chunk &chunk = chunks[i];
        if (!is_user_queue(chunk.queue_index, is.edma_mask)) {
            return broken("submission", EINVAL,
                          "%s: chunk %u names queue %u, which programs may not "
                          "use",
                          card.name, i, chunk.queue_index);
        }
        /* The other flags, and the padding, are not looked at. */
        if ((chunk.cs_chunk_flags & shim::chunk_flag_user_cb) == 0) {
            return broken("submission", EINVAL,
                          "%s: chunk %u has flags %#x: the queues of Gaudi2 "
                          "take command buffers by device address (flag 1) "
                          "only",
                          card.name, i, chunk.cs_chunk_flags);
        }
        if (!card.table.may_hold_commands(chunk.cb_handle, chunk.cb_size)) {
            return broken("submission", EFAULT,
                          "%s: chunk %u: command buffer %#lx of %u bytes is in "
                          "no range that may hold one",
                          card.name, i, chunk.cb_handle, chunk.cb_size);
        }
    }
    return 0;
}

int submit(context &card, const fault_effect *fate, const submit_in &in,
           uint64_t &seq_p)
{
    const uint32_t count = in.num_execute;
    int ret              = 0;
    if (((in.flags | in.pad) != 0) && ((ret = check(card, in)) != 0)) {
        return ret;
    }
    if ((count == 0) || (count > shim::max_chunks_per_cs)) {
        return broken("submission", EINVAL,
                      "%s: a submission has 1 to %u chunks, not %u", card.name,
                      shim::max_chunks_per_cs, count);
    }
    const auto *chunks = reinterpret_cast<const hl_cs_chunk *>(in.execute);
    if (chunks == nullptr) {
        return broken("submission", EFAULT, "%s: a submission without chunks",
                      card.name);
    }
    if (card.queues.is_full()) {
        return -EAGAIN;
    }
    /* A rejected submission has its number all the same. */
    const uint64_t seq = card.queues.take_number();
    ret                = check_chunks(card, chunks, count);
    if (ret == 0) {
        seq_p = seq;
        card.queues.begin(seq, chunks, count, fate);
    }
    return ret;
}

/* Nothing is posted here, so there is nothing to wait for; the driver answers 0
 * on cards without early write responses, too. */
int flush(software_card &of, const submit_in &in)
{
    return of.with_open(
        {}, [&](context &card, card_lock &) { return check(card, in); });
}

} // namespace

int answer(device_file file, submit_args &arguments)
{
    uint64_t seq        = UINT64_MAX;
    software_card &of   = software_card::at(file.card);
    const submit_in &in = arguments.in;
    const int ret =
        ((in.flags & cs_flag_flush) != 0)
            ? flush(of, in)
            : of.hand_over([&](context &card, const fault_effect *fate) {
                  return submit(card, fate, in, seq);
              });
    if (ret == -EAGAIN) {
        return broken("in-flight", EAGAIN,
                      "accel%u: %u submissions are under way", file.card,
                      shim::max_cs_in_flight);
    }
    arguments     = {};
    arguments.out = {.seq             = seq,
                     .status          = static_cast<uint32_t>(ret),
                     .sob_base_offset = 0,
                     .sob_count       = 0,
                     .pad             = {}};
    return ret;
}

int wait_for_room(int fd)
{
    return on_compute(fd, &software_card::wait_for_room);
}

} // namespace gaudi::emu::driver
