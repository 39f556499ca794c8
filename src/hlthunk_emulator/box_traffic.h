/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The timing model of this box, which its processes share: transfers of one
 * process take away from what others have of the same links.
 *
 * It is in a file in memory that every process of the box has open that has
 * opened a card, and goes with the last of them. Others find it in /proc, as
 * they find compute nodes: processes that hide from each other have a model
 * each. What a process has on its way when it is killed is dropped from the
 * model as soon as somebody looks: every process holds a lock of the file as
 * long as it lives. Any thread.
 */
#pragma once

#include "hlthunk_emulator/traffic.h"
#include "util/file_mapping.h"
#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <string>

namespace gaudi::emu {

class box_traffic {
public:
    /** Of this process's box; made, or joined, by the first call.
     *  @return nullptr when HLTHUNK_EMU_TIMING is off, or when it cannot be
     *          had, which is logged. @throws bad_alloc. */
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

    /** As instance(). */
    box_traffic();
    /** For tests. @param name  Of the file. */
    box_traffic(const timing_figures &speed, const std::string &name);
    box_traffic(const box_traffic &)            = delete;
    box_traffic &operator=(const box_traffic &) = delete;
    ~box_traffic();

    /** Whether it can be used. */
    [[nodiscard]] bool good() const { return shared_.start() != nullptr; }

private:
    struct shared_state;
    class locked;

    int join(const std::string &name);
    bool map();
    int begin();
    int take_owner_number();
    void drop_the_dead(shared_state &state, model_time now) const;

    const timing_figures speed_;
    util::unique_fd fd_;
    util::closed_in_children closed_in_children_;
    util::file_mapping shared_;
    uint16_t owner_ = 0;
};

} // namespace gaudi::emu
