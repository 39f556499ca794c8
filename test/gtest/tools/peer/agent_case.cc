#include "gtest/tools/peer/agent_case.h"

#include "gtest/tools/peer/check.h"

#include <cstring>

namespace peer {

agent_case parse_case(int argc, char **argv)
{
    agent_case result;
    if (argc < 4) {
        die("usage", "ucp_agents client|server CASE COUNT [OPTION...]");
    }
    result.is_client = (std::strcmp(argv[1], "client") == 0);
    result.what      = argv[2];
    result.count     = std::stoul(argv[3]);
    for (int i = 4; i < argc; ++i) {
        const std::string option = argv[i];
        if (option == "thread") {
            result.agents.progress_thread = true;
        } else if (option.starts_with("workers=")) {
            result.agents.workers = static_cast<unsigned>(
                std::stoul(option.substr(option.find('=') + 1)));
        } else if (option == "no-errors") {
            result.agents.peer_errors = false;
        } else if (option == "host") {
            result.host = true;
        } else if (option == "card") {
            result.card = true;
        } else {
            die(option, "is no option");
        }
    }
    return result;
}

} // namespace peer
