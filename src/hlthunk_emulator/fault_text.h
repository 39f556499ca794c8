/**
 * Faults on demand, as text:
 *
 *     CALL[#N[+]]=WHAT[@CARD]
 *
 * CALL is a `faulty_call`. N counts the calls of this process on one card since
 * the fault was wished for, from 1: that one goes wrong, with a plus that one
 * and all behind it, without a number all. WHAT is an errno by its name;
 * `reset`, `reset:OPENS`, `kill` or `remove`, which happen to the card; of jobs
 * and packets `abort`; and of jobs `delay:TIME`, `lose` or `lose:TIME`. A TIME
 * has a unit: us, ms or s. Without @CARD it is about every card, each with a
 * count of its own.
 *
 *     reset=OPENS[@CARD]
 *
 * So many of its next opens find the card in reset.
 */
#pragma once

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
    submit,    /**< of a command submission; nothing is started */
    wait,      /**< the question how a job went, waiting or not */
    job,    /**< that was submitted; happens when its bytes have been moved */
    packet, /**< that engines can make nothing of, or with a bad address:
                 `reset` as the driver makes it, unless `abort` or `remove`
                 is wished for */
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
    lose    /**< the job ends never: after a time the driver resets the card */
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

} // namespace gaudi::emu
