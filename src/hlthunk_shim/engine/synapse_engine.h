/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A card that SynapseAI has acquired in this process, driven through it.
 *
 * SCAL, below SynapseAI, runs the card's DMA engines by processors of the card:
 * command submission beside it is outside of any contract, and Gaudi3 has no
 * other way. What goes by the card's descriptor alone (import, export, facts)
 * goes to the driver.
 *
 * Addresses: host memory has its pointer, since SynapseAI translates the host's
 * end of a copy by what was mapped with it. It takes the device's end as it is,
 * and a wrong one resets the card and ends the process; so both ends are looked
 * at before a copy is submitted. An import is an address of the card's, which
 * to SynapseAI is a device's end; SCAL copies between two of these with a PDMA
 * engine, which reaches it (scal/configs/gaudi2 and gaudi3, default.json,
 * "pdma_device2device", in HabanaAI/Intel_Gaudi3_Software). That was not run on
 * hardware.
 *
 * Nothing here waits inside SynapseAI: a framework cannot release its device
 * while a thread is in there, and takes that for the end of the world.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/synapse/session.h"

#include <functional>

namespace gaudi::shim {

/**
 * Use the card of a session.
 *
 * @param lib      Must outlive it.
 * @param map_application_memory  Whether host memory of the application may be
 *                 mapped by SynapseAI; else it refuses registrations.
 * @param ending   Called at the end of the card.
 * @param card_p   Filled on success only.
 * @return 0 or -errno.
 */
[[nodiscard]] int adopt_card(const library &lib,
                             std::shared_ptr<synapse_session> session,
                             bool map_application_memory,
                             std::function<void()> ending,
                             std::unique_ptr<card> &card_p);

} // namespace gaudi::shim
