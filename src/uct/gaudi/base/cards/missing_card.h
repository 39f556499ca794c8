/**
 * Why a process has no card, for whoever asks for Gaudi memory.
 *
 * UCX opens all memory domains in every process, so a card that cannot be had
 * is no news by itself. It is when somebody wants memory of it: the reason is
 * kept for that time. Settings that are wrong are told at once.
 */
#pragma once

#include "hlthunk_shim/cards/visible_cards.h"
#include "hlthunk_shim/driver.h"

#include <cstddef>
#include <string>
#include <vector>

namespace gaudi::base {

struct missing_card {
    std::string why;                       /**< empty: nothing was in the way */
    std::vector<shim::visible_card> taken; /**< by other processes; follow the
                                          reason, if there is one */
    bool told = false;                     /**< the log has it already */
};

/**
 * Why no card was opened.
 *
 * @param visible  How many of the cards of the box the process may see.
 * @param busy     How many of these are taken; the log has what is wrong with
 *                 the others.
 */
std::string why_none(size_t visible, size_t busy, size_t box);

/** Who has cards: "gaudi0 by pid 12 (program); ...". Looks through /proc. */
std::string describe_taken(const shim::driver &driver,
                           const std::vector<shim::visible_card> &taken);

/** The reason in one line; what it says of other processes is of now. */
std::string describe(const shim::driver &driver, const missing_card &missing);

} // namespace gaudi::base
