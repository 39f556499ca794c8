/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Faults on demand: which calls and jobs of this process go wrong, and how. As
 * text:
 *
 *     CALL[#N[+]]=WHAT[@CARD]
 *
 * CALL is a `faulty_call`. N counts the calls of this process on one card since
 * the fault was wished for, from 1: that one goes wrong, with a plus that one
 * and all behind it, without a number all. WHAT is an errno by its name;
 * `reset`, `reset:OPENS`, `kill` or `remove`, which happen to the card; of jobs
 * packets and WQEs `abort`; and of jobs `delay:TIME`, `lose` or `lose:TIME`. A
 * TIME has a unit: us, ms or s. Without @CARD it is about every card, each with
 * a count of its own.
 *
 *     port=down[@CARD[.PORT]], port=up[@CARD[.PORT]]
 *
 * Of a wire, for both of its ends.
 *
 *     reset=OPENS[@CARD]
 *
 * So many of its next opens find the card in reset.
 *
 * Knows cards by their numbers only, and does nothing to them: who makes a call
 * asks what it is to meet with. Any thread; the lock is a leaf.
 */
#pragma once

#include "hlthunk_emulator/asic.h"
#include "util/fork_handlers.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gaudi::emu {

enum class faulty_call {
    open,      /**< of the compute node */
    close,     /**< of its last descriptor; `reset` only */
    allocate,  /**< "alloc" */
    free,      /**< "free" */
    map,       /**< of device or host memory */
    unmap,     /**< of either */
    export_to, /**< "export" */
    import,    /**< of a dma-buf */
    route,     /**< to the card of an import, which succeeds: its first copy
                    resets the card that copies. `reset` only */
    submit,    /**< of a command submission; nothing is started */
    wait,      /**< the question how a job went, waiting or not */
    job,    /**< that was submitted; happens when its bytes have been moved */
    packet, /**< that engines can make nothing of, or with a bad address:
                 `reset` as the driver makes it, unless `abort` or `remove`
                 is wished for */
    wqe,    /**< of a port, when it is looked at; `abort` is an error of its
                 queue pair, and with `lose` its sender hears nothing of it */
    port,   /**< no call: the wire of a port is `down`, or `up`, from now on */
    reset,  /**< no call: so many opens find the card in reset */
    now     /**< at once, on open and closed cards; `reset` and `remove` */
};

enum class fault_kind {
    none,
    error,  /**< the call answers with an errno */
    reset,  /**< of the card */
    remove, /**< of the card */
    abort,  /**< the job ends as aborted, and the card goes on */
    delay,  /**< the job ends later */
    lose,   /**< the job ends never: after a time the driver resets the card */
    down,   /**< the wire carries nothing */
    up      /**< it does again */
};

/** Opens that find a card in reset, unless a fault names a number. */
inline constexpr uint32_t usual_reset_opens = 2;

/** What a call or job meets with. */
struct fault_effect {
    fault_kind kind = fault_kind::none;
    int error       = 0;                 /**< errno */
    uint32_t opens  = usual_reset_opens; /**< of a reset */
    bool kills      = false; /**< a reset ends the process that keeps the card
                                  open, as the driver does it */
    std::chrono::microseconds time{0}; /**< of a delay, or until a reset */
};

struct fault {
    faulty_call call = faulty_call::open;
    uint64_t first   = 1; /**< the calls that it is about */
    uint64_t last    = UINT64_MAX;
    std::optional<unsigned> card; /**< none: every one */
    std::optional<unsigned> port; /**< of a card's; none: every one */
    fault_effect effect;
};

/**
 * Read a list of faults, separated by commas.
 *
 * @param cards     How many the box has.
 * @param faults_p  They are added here.
 * @return Empty, or what is wrong with the first bad one.
 */
std::string parse_faults(std::string_view text, unsigned cards,
                         std::vector<fault> &faults_p);

class faults {
public:
    /** Those of this process. What HLTHUNK_EMU_FAULTS wishes is among them as
     *  soon as there are cards. */
    static faults &instance();

    /** Wish for more. @throws bad_alloc. */
    void add(const std::vector<fault> &wished);

    /** How many calls and jobs have met with one so far. */
    [[nodiscard]] uint64_t met() const { return met_.load(); }

    /** Wish for none any more. */
    void clear();

    /** Whether there is any. */
    [[nodiscard]] static bool any()
    {
        return any_.load(std::memory_order_relaxed);
    }

    /** Count a call on a card. @return What it meets with. */
    static fault_effect meet(faulty_call call, unsigned card)
    {
        return any() ? instance().count(call, card) : fault_effect();
    }

private:
    struct wish {
        fault what;
        std::array<uint64_t, max_cards> calls{}; /* so far, by card */
    };

    fault_effect count(faulty_call call, unsigned card);

    util::child_mutex lock_;
    /* As soon as a card has been open; asked by every call. */
    static inline std::atomic<bool> any_{false};
    std::atomic<uint64_t> met_{0};
    std::vector<wish> wishes_;
};

} // namespace gaudi::emu
