/**
 * The cards of the box, and which of them UCX_GAUDI_DEVICES means.
 */
#pragma once

#include "hlthunk_shim/library.h"

#include <string>
#include <vector>

namespace gaudi::base {

/** Bus ids of all cards of the box, by index. Takes no card. */
std::vector<std::string> list_cards(const shim::library &driver);

/** Which cards a process opens. */
struct device_selection {
    std::vector<unsigned> indices; /**< candidates, in order */
    size_t wanted = 0;             /**< how many of them */
    bool named    = false;         /**< the user named them one by one */
    std::string error;             /**< not empty: the setting is bad */
};

/**
 * Read UCX_GAUDI_DEVICES.
 *
 * @param text     auto, all, or indices and bus ids separated by commas.
 * @param bus_ids  The cards of the box.
 */
device_selection select_devices(const std::string &text,
                                const std::vector<std::string> &bus_ids);

} // namespace gaudi::base
