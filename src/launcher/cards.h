/**
 * The cards of the box and who has them. Opens control nodes only.
 */
#pragma once

#include "hlthunk_shim/cards/holders.h"
#include "launcher/machine.h"

#include <optional>
#include <string>
#include <vector>

namespace launcher {

enum class card_state {
    free,
    ours,   /**< a process of this user has it */
    busy,   /**< somebody else has it */
    reset,  /**< its driver resets it: it is free soon */
    broken, /**< its driver has given it up */
    unknown /**< the driver library cannot tell, and nobody is seen with it */
};

const char *to_string(card_state state);

/**
 * Who has a card that works.
 *
 * @param taken  What the driver says; none: it cannot tell.
 * @param seen   Processes that were seen with the card open.
 * @param user   Whose processes are "ours".
 */
card_state find_state(std::optional<bool> taken,
                      const std::vector<gaudi::shim::holder> &seen, uid_t user);

struct card {
    /** As in UCX_GAUDI_DEVICES: the card is called gaudi<index>; none: a
     *  variable hides it from the transports. */
    std::optional<unsigned> index;
    std::string bus_id;
    std::optional<unsigned> module_id;
    std::optional<unsigned> numa_node;
    std::optional<uint64_t> memory; /**< bytes; none: the driver does not say */
    std::optional<uint64_t> free_memory;
    card_state state = card_state::unknown;
    bool software    = false; /**< none of this machine's */
    bool usable      = true;  /**< by the transports, when it is free */
    std::vector<gaudi::shim::holder> held_by;
};

/** "emulator" or "hardware". */
const char *to_kind(const card &of);

struct card_list {
    std::vector<card> cards; /**< in the order of their device files */
    problems complaints;     /**< of the driver, cause by cause */
};

card_list list_cards(const gaudi::shim::driver &driver, const machine &where);

} // namespace launcher
