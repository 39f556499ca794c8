/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/software_card.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/copy_engine.h"
#include "hlthunk_emulator/device_files.h"
#include "hlthunk_emulator/engine_threads.h"
#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/sysfs_view.h"
#include "util/background_thread.h"
#include "util/made_once.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>
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

software_card::software_card(unsigned index)
    : index_(index), name_("accel" + std::to_string(index)),
      resets_(get_settings().resets[index])
{}

/* Made anew in a forked child. */
struct software_card::cards_of_process {
    cards_of_process()
    {
        for (unsigned i = 0; i < max_cards; ++i) {
            all[i].reset(new software_card(i));
        }
    }

    all_cards all;
};

const software_card::all_cards &software_card::make_all()
{
    static constinit util::made_once<bool> wished;
    (void)wished.get([] {
        faults::instance().add(get_settings().faults);
        return true;
    });
    if (!util::run_in_children_once<after_fork>()) {
        throw std::bad_alloc();
    }
    const all_cards &made = util::of_this_process<cards_of_process>().all;
    cards_.store(&made, std::memory_order_release);
    return made;
}

/* In the child: the compute nodes that are known are the parent's. */
void software_card::after_fork()
{
    cards_.store(nullptr);
    for (int fd = 0; fd < device_files_end; ++fd) {
        const device_file file = device_file_at(fd);
        if (file.kind == file_of::compute) {
            (void)add_device_file(fd, {file_of::inherited, file.card});
        }
    }
}

void software_card::release(card_lock &lock)
{
    /* Stopping lets go of the lock: another thread that closes the card finds
     * it closed. */
    const std::unique_ptr<context> closing = std::move(open_);
    for (int fd = 0; fd < device_files_end; ++fd) {
        remove_device_file(fd, {file_of::compute, index_});
    }
    closing->queues.stop(lock);
    last_period_ = clock::now() - closing->opened_at;
    note_breakdown(*closing);
    const fault_effect met = faults::meet(faulty_call::close, index_);
    if ((met.kind == fault_kind::reset) && !removed_) {
        resets_        = std::max(resets_, met.opens);
        resets_itself_ = true;
    }
    if (box_traffic *timing = box_traffic::instance()) {
        timing->forget(index_);
    }
    box::instance().end(box::use::compute_node, index_);
}

/* Close a card whose last descriptor the application closed with close(2). */
void software_card::drop_stale(card_lock &lock)
{
    if ((open_ != nullptr) && (open_->node.find() < 0)) {
        release(lock);
    }
}

bool software_card::recognize(int fd)
{
    const card_lock lock(lock_);
    return (open_ != nullptr) && open_->node.is_same(fd) &&
           add_device_file(fd, {file_of::compute, index_});
}

int software_card::open()
{
    guard_copies();
    const box &shared = box::instance();
    if (shared.error() != 0) {
        return shared.error();
    }
    auto watch = job_watch::create(index_);
    card_lock lock(lock_);
    note_breakdown();
    const int met = meet(faulty_call::open);
    if (removed_) {
        return -ENODEV;
    }
    /* The driver asks for this first, and tells who has the card afterwards. */
    if (resets_ > 0) {
        --resets_;
        log("%s: in reset", name_.c_str());
        return -EAGAIN;
    }
    resets_itself_ = false;
    if (met != 0) {
        return met;
    }
    drop_stale(lock);
    if (open_ != nullptr) {
        return -EBUSY;
    }
    util::unique_fd holder(shared.take_card(index_));
    if (!holder) {
        log("%s: taken by another process", name_.c_str());
        return holder.get();
    }
    completed_.clear(); /* the numbers begin anew */
    if (box_traffic *const timing = box_traffic::instance()) {
        timing->forget(index_); /* what a process that was killed had */
    }
    auto opened = std::make_unique<context>(completed_, name_.c_str(), index_,
                                            std::move(watch));
    opened->holder_closed_in_children = util::closed_in_children(holder.get());
    opened->holder                    = std::move(holder);

    int ret =
        opened->memory.create(get_settings().user_hbm(), numa_node_of(index_));
    if (ret != 0) {
        return ret;
    }
    const int fd = opened->node.create(index_);
    if (fd < 0) {
        return fd;
    }
    opened->show_free_memory();
    shared.begin(box::use::compute_node, index_);
    open_ = std::move(opened);
    ++opens_;
    return fd;
}

int software_card::close(int fd)
{
    card_lock lock(lock_);
    if ((open_ == nullptr) || !open_->node.is_same(fd)) {
        return -EBADF;
    }
    const int ret = (::close(fd) == 0) ? 0 : -errno;
    drop_stale(lock);
    return ret;
}

uint64_t software_card::free_dram()
{
    {
        card_lock lock(lock_);
        drop_stale(lock);
        if (open_ != nullptr) {
            return open_->memory.free_bytes();
        }
    }
    const box &shared = box::instance();
    return shared.is_elsewhere(box::use::compute_node, index_)
               ? shared.state().free_memory[index_].load()
               : get_settings().user_hbm();
}

void software_card::open_stats(driver::open_stats_info &stats)
{
    using std::chrono::duration_cast;
    using std::chrono::milliseconds;

    card_lock lock(lock_);
    drop_stale(lock);
    const box &shared  = box::instance();
    const bool is_open = (open_ != nullptr) ||
                         shared.is_elsewhere(box::use::compute_node, index_);
    stats                       = {};
    stats.open_counter          = opens_;
    stats.is_compute_ctx_active = shared.card_is_taken(index_) ? 1 : 0;
    /* Somebody still has a dma-buf of it. */
    stats.compute_ctx_in_release =
        (stats.is_compute_ctx_active != 0) && !is_open ? 1 : 0;
    stats.last_open_period_ms = static_cast<uint64_t>(
        duration_cast<milliseconds>(last_period_).count());
}

void software_card::kick_engines()
{
    engine_threads::instance().kick(
        {index_, [](unsigned card) { return at(card).run_unattended(); }});
}

int software_card::wait_for_room()
{
    card_lock lock(lock_);
    const int ret = enter({});
    return (ret != 0) ? ret : open_->queues.wait_for_room(lock);
}

int software_card::copy(uint64_t dst, uint64_t src, uint64_t size,
                        unsigned engine, uint64_t &seq_p)
{
    const auto work = [&](context &card, const fault_effect *fate) {
        return card.queues.copy({dst, src, size}, engine, seq_p, fate);
    };
    int ret = hand_over(work);
    while (ret == -EAGAIN) {
        ret = wait_for_room();
        ret = (ret != 0) ? ret : hand_over(work);
    }
    return ret;
}

int software_card::wait(uint64_t seq, uint64_t timeout_us,
                        driver::wait_out &out)
{
    card_lock lock(lock_);
    int ret = enter(faulty_call::wait);
    if (ret == 0) {
        ++polls_;
        ret = open_->queues.wait(lock, seq, timeout_us, out);
    }
    if ((ret != 0) && (open_ != nullptr)) {
        open_->queues.end_unfinished(lock, seq, ret);
    }
    return ret;
}

int software_card::dram_usage(driver::dram_usage_info &usage)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    usage.free       = open_->memory.free_bytes();
    usage.of_context = open_->memory.size() - usage.free;
    return 0;
}

int software_card::counters(hlthunk_emu_counters &counters_p)
{
    card_lock lock(lock_);
    if (open_ == nullptr) {
        return -EBADF;
    }
    counters_p = open_->totals;
    return 0;
}

int software_card::pause(bool paused)
{
    {
        card_lock lock(lock_);
        if (open_ == nullptr) {
            return -EBADF;
        }
        open_->queues.pause(paused);
    }
    if (!paused) {
        kick_engines();
    }
    return 0;
}

bool software_card::run_unattended()
{
    card_lock lock(lock_);
    if ((open_ == nullptr) || open_->queues.is_idle()) {
        return false;
    }
    /* A piece releases the lock, and the card may be closed meanwhile. */
    while ((polls_ == polls_seen_) && (open_ != nullptr) &&
           open_->queues.run_piece(lock)) {}
    polls_seen_ = polls_;
    return true;
}

/* --- what happens to a card that goes wrong ------------------------------- */

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

void software_card::note_breakdown()
{
    if (open_ != nullptr) {
        note_breakdown(*open_);
    }
}

/* The queues find out by themselves that it is so far. */
void software_card::note_breakdown(context &of)
{
    if (of.broken_down || !of.queues.breakdown().has_value()) {
        return;
    }
    const fault_effect &why = *of.queues.breakdown();
    of.broken_down          = true;
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
