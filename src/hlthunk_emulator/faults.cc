#include "hlthunk_emulator/faults.h"

#include "util/made_once.h"

#include <memory>
#include <mutex>

namespace gaudi::emu {

faults &faults::instance()
{
    /* Never destroyed: engine threads may outlive static destructors. */
    static constinit util::made_once<faults *> wished;
    return *wished.get([] {
        auto *made = new faults;
        made->add(get_settings().faults);
        return made;
    });
}

void faults::add(const std::vector<fault> &wished)
{
    const std::lock_guard<util::brief_lock> guard(lock_);
    for (const fault &what : wished) {
        wishes_.push_back({what, {}});
    }
    any_ = !wishes_.empty();
}

void faults::clear()
{
    const std::lock_guard<util::brief_lock> guard(lock_);
    any_ = false;
    wishes_.clear();
}

fault_effect faults::count(faulty_call call, unsigned card)
{
    fault_effect met;
    const std::lock_guard<util::brief_lock> guard(lock_);
    for (wish &each : wishes_) {
        if ((each.what.call != call) ||
            (each.what.card.value_or(card) != card)) {
            continue;
        }
        const uint64_t number = ++each.calls[card];
        if ((met.kind == fault_kind::none) && (number >= each.what.first) &&
            (number <= each.what.last)) {
            met = each.what.effect;
        }
    }
    met_ += (met.kind != fault_kind::none) ? 1 : 0;
    return met;
}

void faults::after_fork_in_child()
{
    std::construct_at(&lock_);
}

} // namespace gaudi::emu
