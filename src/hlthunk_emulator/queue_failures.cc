/* How jobs end that do not end well. */
#include "hlthunk_emulator/queue_manager.h"

#include <cerrno>

namespace gaudi::emu {

void queue_manager::abort(job &owner)
{
    if (owner.status == shim::cs_completed) {
        owner.status = shim::cs_aborted;
        ++counters_.jobs_aborted;
    }
}

void queue_manager::end_unfinished(card_lock &lock, uint64_t seq, int error)
{
    const bool has_ended =
        is_over() || (error == -ETIMEDOUT) || (error == -EIO);
    if (!has_ended) {
        return;
    }
    job &owner = slot_of(seq);
    if ((owner.seq == seq) && (owner.parts > 0)) {
        abort(owner);
    }
    quiesce(lock);
}

/* A job has ended, or would have. */
void queue_manager::meet_fate(job &owner)
{
    switch (owner.fate.kind) {
    case fault_kind::abort:
        abort(owner);
        break;
    case fault_kind::reset:
    case fault_kind::remove:
        abort(owner);
        break_down(owner.fate);
        break;
    default:
        break;
    }
}

void queue_manager::break_down(const fault_effect &why)
{
    if (breakdown_) {
        return;
    }
    breakdown_ = why;
    for (job &each : jobs_) {
        if (each.parts > 0) {
            abort(each);
        }
    }
    /* The driver says of no job any more how it ended. */
    completed_.clear();
    changed_.notify_all();
}

} // namespace gaudi::emu
