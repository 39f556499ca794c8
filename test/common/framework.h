/**
 * Processes that run a framework beside UCX.
 */
#pragma once

namespace gaudi::test {

/** Whether the whole suite is to run so: GAUDI_TEST_FRAMEWORK is set. */
bool runs_beside_framework();

/** If it is, have the stand-in for SynapseAI acquire a card, once. Before UCX
 *  opens cards. */
void start_framework();

/** Whether that has acquired one. */
bool has_framework();

} // namespace gaudi::test
