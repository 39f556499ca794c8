/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `ucx-gaudi check`: what the transports take for granted of the driver and the
 * cards, tried step by step, from harmless to heavier.
 *
 * Each step is a child of its own with a time limit, so that one that crashes
 * or hangs costs its own answer alone. docs/hardware.md lists what each of
 * them is about.
 */
#pragma once

#include "launcher/info.h"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace launcher {

enum class verdict {
    ok,
    absent,  /**< the machine has not what the step is about */
    failed,  /**< it found something wrong */
    died,    /**< a signal has ended it */
    hung,    /**< it was ended when its time was over */
    left_out /**< what it builds on does not work */
};

struct check_request {
    std::optional<unsigned> card;    /**< its name; none: the first free one */
    bool reset = false;              /**< have the card reset itself, too */
    std::chrono::seconds limit{120}; /**< of each step */
    std::string output; /**< a new file; empty: a name made of the time */
};

/** What a step works on. */
struct subject {
    const report *found = nullptr;   /**< has the cards, and their driver */
    std::chrono::seconds patience{}; /**< with the card: resets, and copies */
    std::string bus_id      = {};
    std::string peer_bus_id = {}; /**< of a second free card; empty: none */
};

/** One step. */
struct step {
    const char *name;
    const char *needs; /**< the step that has to go well first; nullptr */
    const char *means; /**< what it means when this one fails */
    /** In the child (tried_card.h): returns what was found, and does not return
     *  when that is anything but ok. */
    std::string (*body)(const subject &with);
};

extern const step library_step;
extern const std::vector<step> card_steps; /**< then these of one card */
extern const step pair_step;               /**< this for each pair */
extern const std::vector<step> late_steps; /**< these of one card */
extern const step reset_step;              /**< for who asks for it */

/** One line of the table. */
struct finding {
    std::string step;
    verdict how    = verdict::left_out;
    double seconds = 0;
    std::string detail; /**< one line */
    std::string means;  /**< empty unless something is wrong */
    std::string log;    /**< what the step printed */
    std::string names;  /**< of pairs that it is about */

    [[nodiscard]] bool is_wrong() const
    {
        return (how == verdict::failed) || (how == verdict::died) ||
               (how == verdict::hung);
    }
};

/* In the child of a step. */

/** Say what is done now: a failure tells it, and so does the finding of a step
 *  that does not come back. */
void doing(const std::string &what);

/** End the step. @param of_all  The first card is in no state for others. */
[[noreturn]] void end_step(verdict how, const std::string &detail,
                           bool of_all = false);

/** The same as failed, with what was done. */
[[noreturn]] void fail_step(const std::string &why, bool of_all = false);

struct check_result {
    std::vector<finding> findings;
    report found;        /**< what `info` reports */
    std::string nothing; /**< not empty: why nothing could be checked */

    [[nodiscard]] bool is_good() const;
};

/** Check a card, and every pair that it is in; without a wish for one, every
 *  pair of free cards. Loads UCX into the process.
 *  @param tell  Called with each finding as soon as there is one. */
check_result run_check(const installation &files, const machine &where,
                       const check_request &wanted,
                       const std::function<void(const finding &)> &tell);

/** Why there is no card to check, and what to do; one line.
 *  @param closed  Nodes that this user may not open.
 *  @param wish    The card that is wanted; none: any. */
std::string explain_nothing(const report &found, const problems &closed,
                            const std::optional<unsigned> &wish);

/** What is attached to a report of a bug: the table and all that explains it.
 */
std::string to_archive(const check_result &result, const std::string &version);

/** All of the command. @return Its exit code. */
int show_check(const installation &files, const request &emulation,
               const check_request &wanted, const std::string &version);

} // namespace launcher
