/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Hands planned copies to whoever moves their bytes, job by job, and collects
 * jobs that have ended.
 *
 * Copies wait in the queues of the cards, and take turns. Calls no completion:
 * it tells the operations what has ended.
 */
#pragma once

#include "uct/gaudi/base/transfer/channel_set.h"
#include "uct/gaudi/base/transfer/operations.h"
#include "uct/gaudi/base/transfer/wakeup.h"

namespace gaudi::base {

class dispatcher {
public:
    /* Staging chunks that only synchronous copies may take, so that they always
     * get on: two, to fill one while the other is on its way. */
    static constexpr size_t reserved_chunks = 2;

    dispatcher(const transfer_options &options, const channel_set &channels,
               operations &all);

    /** Let an operation wait for its turn, which may be now. */
    void enqueue(operation &op);

    /** Make a synchronous copy, and return when it has ended; operations make
     *  progress only as far as it needs them to. */
    void run(transfer &work, planned_copy &copy);

    /** Copy a few bytes between host memory and device memory, through a chunk,
     *  if nothing that the card has to do first is in the way.
     *  @param by  The channel of a card that reaches the device memory at va.
     *  @param status_p  Set when it has ended: UCS_OK, or an error, which was
     *                   logged. @return Whether it has. */
    [[nodiscard]] static bool copy_at_once(channel &by, bool to_card,
                                           uint64_t va, void *host,
                                           size_t length,
                                           ucs_status_t &status_p);

    /** Collect what has ended, and submit what there is room for. */
    void advance();

    /** The same until nothing more has ended. */
    void advance_all();

    /** Whether every card has a chunk for one operation more. */
    [[nodiscard]] bool has_chunks() const;

    /** Have the end of every job signalled that waits, or is waited for.
     *  @return false when there is something to do already, or nothing that
     *          could be signalled although something waits: try again.
     *  @throws std::system_error as wakeup_event::signal_after. */
    [[nodiscard]] bool arm(wakeup_event &event);

    /** End what waits for its turn as canceled. */
    void cancel_waiting();

    /** Wait for the jobs that cards run. @return false when some do not end. */
    bool drain();

private:
    ucs_status_t prepare(dma_job &job, planned_copy &copy, size_t leave);
    bool submit_next(transfer &owner, planned_copy &copy, size_t leave);
    bool submit_piece(work_queue &queue);
    void submit_all();
    unsigned submit_onward();
    void take_turns(ucs_list_link_t &list, operation &op);
    unsigned collect(shim::dma_queue &queue);
    unsigned collect_all();
    void finish(dma_job &job, ucs_status_t status);

    const size_t piece_bytes_;
    const channel_set &channels_;
    operations &operations_;
    ucs_queue_head_t onward_; /* jobs for another card, oldest first */
};

} // namespace gaudi::base
