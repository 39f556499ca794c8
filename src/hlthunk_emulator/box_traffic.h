/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The timing model of this box, which its processes share: transfers of one
 * process take away from what others have of the same links.
 *
 * It is in the box file. What a process has on its way when it is killed is
 * dropped from the model as soon as somebody looks. Any thread.
 */
#pragma once

#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/traffic.h"

namespace gaudi::emu {

class box_traffic {
public:
    /** Of this process's box, which it has joined.
     *  @return nullptr when HLTHUNK_EMU_TIMING is off. @throws bad_alloc. */
    static box_traffic *instance();

    /** Have a flow begin, whose owner is filled in. */
    void add(flow added);

    /** When a job has ended for whoever polls, or will at the earliest. */
    [[nodiscard]] model_time earliest_end(unsigned card, uint64_t job);

    /** The same without what comes after the last byte: for what the program
     *  sees arrive. 0: unknown. */
    [[nodiscard]] model_time last_byte(unsigned card, uint64_t job);

    /** A job of a card that this process has open, or all of them, are over.
     */
    void forget(unsigned card, uint64_t job);
    void forget(unsigned card);

    [[nodiscard]] const timing_figures &speed() const { return speed_; }

    box_traffic()                               = default;
    box_traffic(const box_traffic &)            = delete;
    box_traffic &operator=(const box_traffic &) = delete;

private:
    void drop_the_dead(const box::turn &state, model_time now) const;

    const timing_figures speed_ = *get_settings().timing;
    const box &box_             = box::instance();
};

} // namespace gaudi::emu
