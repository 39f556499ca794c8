/**
 * Which calls and jobs of this process go wrong, and how: counts the calls.
 *
 * Knows cards by their numbers only, and does nothing to them: who makes a call
 * asks what it is to meet with. Any thread; the lock is a leaf.
 */
#pragma once

#include "hlthunk_emulator/fault_text.h"
#include "hlthunk_emulator/settings.h"
#include "util/locks.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace gaudi::emu {

class faults {
public:
    /** Those of this process, begun with what HLTHUNK_EMU_FAULTS wishes. */
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

    /** The lock is the parent's. */
    void after_fork_in_child();

private:
    struct wish {
        fault what;
        std::array<uint64_t, max_cards> calls{}; /* so far, by card */
    };

    fault_effect count(faulty_call call, unsigned card);

    util::brief_lock lock_;
    /* As soon as a card has been open; asked by every call. */
    static inline std::atomic<bool> any_{false};
    std::atomic<uint64_t> met_{0};
    std::vector<wish> wishes_;
};

} // namespace gaudi::emu
