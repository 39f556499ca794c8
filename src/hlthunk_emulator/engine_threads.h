/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The threads that make progress when nobody waits for a job.
 *
 * One small pool per process for all its cards, started by the first job that
 * its submitter did not finish. Whoever polls for a job does the work itself,
 * so a thread steps in only where nobody has polled for a while: on two cores
 * that are shared by two polling processes it would be in the way. Without work
 * the threads sleep until they are kicked. A thread works for a card on that
 * card's NUMA node.
 */
#pragma once

#include "util/process.h"

#include <condition_variable>
#include <mutex>
#include <vector>

namespace gaudi::emu {

/** What the threads work for: a card, as long as the process lives. */
struct engine_work {
    unsigned card; /**< index */
    /** Do queued work, for as long as nobody polls.
     *  @return false when there was none, nor any that somebody polls for. */
    bool (*run_unattended)(unsigned card);
};

class engine_threads {
public:
    /** Work of this card waits. Call without the card's lock. */
    void kick(const engine_work &busy);

    /** The pool of this process; threads may run in it to the end. */
    static engine_threads &instance()
    {
        return util::of_this_process<engine_threads>();
    }

private:
    void run();
    bool work();

    std::mutex lock_;
    std::condition_variable kicked_;
    std::vector<engine_work> cards_; /* every card that was ever kicked */
    bool started_        = false;
    unsigned sleeping_   = 0;
    unsigned long kicks_ = 0;
};

} // namespace gaudi::emu
