/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which of the visible cards UCX_GAUDI_DEVICES means.
 */
#pragma once

#include "hlthunk_shim/discovery/visible_cards.h"

namespace gaudi::base {

/** Which cards a process opens. */
struct device_selection {
    std::vector<size_t> cards; /**< candidates, in order: places in the list of
                                    visible cards */
    size_t wanted = 0;         /**< how many of them */
    bool named    = false;     /**< the user named them one by one */
    std::string error;         /**< not empty: the setting is bad */
};

/**
 * Read UCX_GAUDI_DEVICES.
 *
 * @param text     auto, all, or names, indices and bus ids separated by commas.
 * @param visible  The cards that it selects from.
 */
device_selection select_devices(const std::string &text,
                                const shim::visible_cards &visible);

} // namespace gaudi::base
