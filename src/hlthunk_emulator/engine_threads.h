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

#include <condition_variable>
#include <mutex>
#include <vector>

namespace gaudi::emu {

/** What the threads work for: a card. Lives as long as the process. */
class engine_work {
public:
    [[nodiscard]] virtual unsigned index() const = 0;

    /**
     * Do queued work, for as long as nobody polls.
     *
     * @return false when there was none, nor any that somebody polls for.
     */
    virtual bool run_unattended() = 0;

protected:
    ~engine_work() = default;
};

class engine_threads {
public:
    /** Work of this card waits. Call without the card's lock. */
    void kick(engine_work &busy);

    /* See card::prepare_for_fork. */
    void after_fork_in_child();

    /** The pool of this process. */
    static engine_threads &instance();

private:
    void run();
    bool work();

    std::mutex lock_;
    std::condition_variable kicked_;
    std::vector<engine_work *> cards_; /* every card that was ever kicked */
    bool started_        = false;
    unsigned sleeping_   = 0;
    unsigned long kicks_ = 0;
};

} // namespace gaudi::emu
