/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What ucp_peer does besides transfers of one by one. Arguments begin with the
 * word in front of those that are described with each.
 */
#pragma once

namespace peer {

int run_agents(int argc, char **argv);    /**< see ucp_agents.cc */
int run_exports(int argc, char **argv);   /**< see ucp_exports.cc */
int run_endpoints(int argc, char **argv); /**< see ucp_endpoints.cc */
int run_order(int argc, char **argv);     /**< see ucp_order.cc */

} // namespace peer
