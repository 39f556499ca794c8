/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One card of the box, as one process has it open: the compute context.
 *
 * Entered by any thread; one lock per card orders everything. The object of a
 * card lives as long as the process, its context from open to close.
 */
#pragma once

#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/driver/abi.h"
#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/hbm.h"
#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_emulator/mmu.h"
#include "hlthunk_emulator/node_file.h"
#include "hlthunk_emulator/queue_manager.h"
#include "hlthunk_emulator/settings.h"
#include "util/fork_handlers.h"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gaudi::emu {

class software_card {
public:
    using clock = std::chrono::steady_clock;

    struct command_buffer {
        util::file_mapping data;
        uint64_t va = 0; /* 0 when not mapped */
    };

    /** Everything that an open card has. */
    struct context {
        context(completed_jobs &completed, const char *name_of, unsigned which,
                std::unique_ptr<job_watch> watch)
            : name(name_of), index(which), table(memory),
              queues(table, totals, completed, name, index, std::move(watch))
        {}

        /** Tell other processes how much device memory is free. */
        void show_free_memory() const
        {
            box::instance().state().free_memory[index] = memory.free_bytes();
        }

        const char *const name;
        const unsigned index;
        const settings &is = get_settings();
        util::unique_fd holder; /* keeps other openers out */
        util::closed_in_children holder_closed_in_children;
        node_file node;
        hbm memory;
        mmu table;
        hlthunk_emu_counters totals{};
        queue_manager queues;
        std::map<uint64_t, command_buffer> buffers;
        uint64_t next_buffer        = host_page;
        bool broken_down            = false; /* and the card has noticed */
        clock::time_point opened_at = clock::now();
    };

    /**
     * The card of this index.
     *
     * A forked child has cards of its own, none of which is open: calls on a
     * compute node that it has inherited answer -ENODEV, and it keeps no card
     * taken. Here the emulator differs from the driver, which lets a child act
     * on the context of its parent: the emulated card is the memory and the
     * threads of one process.
     *
     * @throws bad_alloc.
     */
    static software_card &at(unsigned index)
    {
        const all_cards *known = cards_.load(std::memory_order_acquire);
        return *((known != nullptr) ? *known : make_all())[index];
    }

    /**
     * Open the compute node.
     *
     * @return A new file descriptor; -EBUSY while anybody has it open, this
     *         process too; -EAGAIN while it is in reset, as
     *         HLTHUNK_EMU_FAULTS wishes; or another -errno.
     */
    int open();

    /** Close the compute node, or a duplicate: the card is open until the last
     *  one is closed. @return 0, or -EBADF when it is not open. */
    int close(int fd);

    /** Note a duplicate of the compute node.
     *  @return Whether the descriptor is one. */
    bool recognize(int fd);

    /** Free device memory, bytes, whoever has the card open. */
    uint64_t free_dram();

    /** Opens of the compute node: of this process, see hlthunk_emu.h. */
    void open_stats(driver::open_stats_info &stats);

    [[nodiscard]] unsigned index() const { return index_; }

    /* --- faults, see faults.h ----------------------------------------------*/

    /** Let something happen to the card, open or not: a reset or removal; or
     *  let so many opens find it in reset (faulty_call::reset). */
    void meet_now(const fault &what);

    /** As hlthunk_get_device_status_info: shim::device_status, or -ENODEV. */
    int status();

    /** Whether it was removed: all calls answer -ENODEV. */
    [[nodiscard]] bool is_removed() const { return removed_; }

    /* What follows needs an open context and answers as the driver does:
     * -errno, or a negative value where a count or a handle is returned. All
     * but the counters and pause answer -EBUSY while the card is in reset, and
     * -ENODEV afterwards: there is no context any more. The driver, which does
     * not let a reset end before its user is gone, would have killed him. */

    /** Do something with the context, work(context, lock), which may meet with
     *  a fault. */
    template <typename Work>
    int with_open(std::optional<faulty_call> call, Work &&work)
    {
        card_lock lock(lock_);
        const int ret = enter(call);
        return (ret != 0) ? ret : work(*open_, lock);
    }
    /** The same, before what is done without the lock. */
    int begin(faulty_call call)
    {
        return with_open(call, [](context &, card_lock &) { return 0; });
    }
    /** Hand over a job, work(context, fate), and see that somebody does it.
     *  fate: what it is to meet with; nullptr: nothing. */
    template <typename Work>
    int hand_over(Work &&work);
    /** Sleep until a job may be handed over, which was answered with
     *  -EAGAIN. */
    int wait_for_room();
    /** Whether it is known, without a look at the card, that a job has
     * completed and that asking for it meets with nothing. */
    bool has_completed(uint64_t seq)
    {
        return (seq != 0) && completed_.has(seq) && !faults::any();
    }
    int wait(uint64_t seq, uint64_t timeout_us, driver::wait_out &out);
    int dram_usage(driver::dram_usage_info &usage);
    int counters(hlthunk_emu_counters &counters_p);
    int pause(bool paused);
    int copy(uint64_t dst, uint64_t src, uint64_t size, unsigned engine,
             uint64_t &seq_p);

private:
    using all_cards = std::array<std::unique_ptr<software_card>, max_cards>;

    struct cards_of_process;
    static const all_cards &make_all();
    static void after_fork();
    explicit software_card(unsigned index);
    void kick_engines();
    bool run_unattended(); /* see engine_work */
    int enter(std::optional<faulty_call> call)
    {
        const bool is_well = (open_ != nullptr) && !faults::any() &&
                             !open_->queues.breakdown().has_value();
        return is_well ? 0 : enter_with_care(call);
    }
    int enter_with_care(std::optional<faulty_call> call);
    int meet(faulty_call call);
    void break_down(const fault_effect &what);
    void note_breakdown();
    void note_breakdown(context &of);
    void end_process_soon();
    void release(card_lock &lock);
    void drop_stale(card_lock &lock);

    /* Those of this process. Never destroyed: engine threads may outlive static
     * destructors. */
    static inline std::atomic<const all_cards *> cards_{nullptr};

    const unsigned index_;
    const std::string name_;
    util::brief_lock lock_;
    completed_jobs completed_; /* of the open context; needs no lock */
    std::unique_ptr<context> open_;
    uint64_t opens_ = 0;
    uint32_t resets_;            /* opens that find the card in reset */
    bool resets_itself_ = false; /* because it was closed */
    std::atomic<bool> removed_{false};
    clock::duration last_period_{0}; /* of the last open context */
    uint64_t polls_      = 0;        /* calls of wait */
    uint64_t polls_seen_ = 0; /* of these, at the last look of a thread */
};

template <typename Work>
int software_card::hand_over(Work &&work)
{
    bool waiting_work = false;
    int ret           = 0;
    {
        lock_.lock(); /* not by unique_lock, which is slower */
        card_lock lock(lock_, std::adopt_lock);
        ret = enter(faulty_call::submit);
        if (ret != 0) {
            return ret;
        }
        if (faults::any()) {
            const fault_effect fate = faults::meet(faulty_call::job, index_);
            ret =
                work(*open_, (fate.kind == fault_kind::none) ? nullptr : &fate);
        } else {
            ret = work(*open_, nullptr);
        }
        waiting_work = !open_->queues.is_idle();
    }
    if (waiting_work) {
        kick_engines();
    }
    return ret;
}

} // namespace gaudi::emu
