/**
 * What the program of agents is asked to do (ucp_agents.cc has the words).
 */
#pragma once

#include "gtest/tools/peer/agent.h"

#include <string>

namespace peer {

struct agent_case {
    bool is_client = false;
    std::string what;
    size_t count = 0;
    bool host    = false;
    bool card    = false;
    agent_options agents;
};

/** Dies of words that it does not know. */
agent_case parse_case(int argc, char **argv);

} // namespace peer
