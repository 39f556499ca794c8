/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Processes that run a framework beside UCX.
 */
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gaudi::test {

/** Whether the whole suite is to run so: GAUDI_TEST_FRAMEWORK is set. */
bool runs_beside_framework();

/** Whether a process can have no second card: Gaudi3, which takes no work but
 *  through SynapseAI. */
bool has_one_card();

using child_environment = std::vector<std::pair<std::string, std::string>>;

/** Settings, and those of a child in which UCX opens the cards, if the suite
 *  runs beside a framework: no such one, and SynapseAI, which UCX then starts
 *  itself. */
child_environment with_cards_of_ucx(child_environment settings);

/** If it is, have the stand-in for SynapseAI acquire a card, once. Before UCX
 *  opens cards. If that shall acquire one itself, load the stand-in. */
void start_framework();

/** Whether that has acquired one. */
bool has_framework();

} // namespace gaudi::test
