/* What happens to a card that goes wrong: a reset, or its removal. */
#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/software_card.h"
#include "hlthunk_shim/hlthunk/abi.h"
#include "util/background_thread.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>
#include <thread>

#include <unistd.h>

namespace gaudi::emu {

namespace {

/* Between a reset and the end of a process that has the card open
 * (device_kill_open_processes of Linux' drivers/accel/habanalabs). */
constexpr std::chrono::seconds time_to_close{1};

} // namespace

/* Under the lock: all that an open card is asked for begins here. */
int software_card::enter_with_care(std::optional<faulty_call> call)
{
    if (open_ == nullptr) {
        return removed_ ? -ENODEV : -EBADF;
    }
    const int met = call.has_value() ? meet(*call) : 0;
    note_breakdown();
    if (removed_) {
        return -ENODEV;
    }
    if (open_->broken_down) {
        return (resets_ > 0) ? -EBUSY : -ENODEV;
    }
    return met;
}

/* The same, for what is done without the lock. */
int software_card::begin(faulty_call call)
{
    const card_lock lock(lock_);
    return enter(call);
}

/* What a fault has a call answer, 0 or -errno. */
int software_card::meet(faulty_call call)
{
    const fault_effect met = faults::meet(call, index_);
    if (met.kind == fault_kind::error) {
        log("%s: a fault was wished for here", name_.c_str());
        return -met.error;
    }
    if (met.kind != fault_kind::none) {
        break_down(met);
    }
    return 0;
}

void software_card::break_down(const fault_effect &what)
{
    if (open_ != nullptr) {
        open_->queues.break_down(what);
        note_breakdown();
    } else if (what.kind == fault_kind::remove) {
        removed_ = true;
    } else {
        resets_ = std::max(resets_, what.opens);
    }
}

/* The queues find out by themselves that it is so far. */
void software_card::note_breakdown()
{
    if ((open_ == nullptr) || open_->broken_down ||
        !open_->queues.breakdown().has_value()) {
        return;
    }
    const fault_effect &why = *open_->queues.breakdown();
    open_->broken_down      = true;
    if (why.kind == fault_kind::remove) {
        removed_ = true;
        log("%s: removed", name_.c_str());
    } else {
        resets_        = std::max(resets_, why.opens);
        resets_itself_ = false;
        log("%s: in reset", name_.c_str());
        if (why.kills) {
            end_process_soon();
        }
    }
}

/* Who keeps a card open that is in reset, the driver kills. */
void software_card::end_process_soon()
{
    const auto wait_and_kill = [this, opens = opens_] {
        std::this_thread::sleep_for(time_to_close);
        const card_lock lock(lock_);
        if ((open_ != nullptr) && (opens_ == opens)) {
            log("%s: still open after a reset: the process is killed",
                name_.c_str());
            kill(getpid(), SIGKILL);
        }
    };
    try {
        util::start_background_thread("hlthunk-emu", wait_and_kill);
    } catch (const std::system_error &error) {
        log("%s: no thread to kill the process: %s", name_.c_str(),
            error.what());
    }
}

void software_card::meet_now(const fault &what)
{
    const card_lock lock(lock_);
    if (what.call == faulty_call::reset) {
        resets_ = what.effect.opens;
    } else {
        break_down(what.effect);
    }
}

int software_card::status()
{
    const card_lock lock(lock_);
    note_breakdown();
    if (removed_) {
        return -ENODEV;
    }
    if (resets_ == 0) {
        return shim::device_operational;
    }
    return resets_itself_ ? shim::device_resets_after_release
                          : shim::device_in_reset;
}

} // namespace gaudi::emu
