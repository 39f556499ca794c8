/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Programs that run as two processes with a socket between them; above all
 * ucp_peer: traffic, of which both sides look at every byte.
 */
#pragma once

#include "common/namespaces.h"
#include "gtest/tools/fixture.h"

namespace gaudi::test {

/** One run: see peer/ucp_peer.cc for traffic and options. */
struct peers_case {
    std::string traffic;
    arguments options;     /**< of both sides */
    environment variables; /**< of both sides */

    /* Of one side, besides. A prefix is a command that starts the launcher. */
    environment server_variables = {};
    arguments server_prefix      = {};
    arguments client_prefix      = {};

    arguments launcher_options = {"--emulate"}; /* of both sides */
};

struct peers_result {
    process_result server;
    process_result client;
};

/** A command and what it is started with. */
struct peer_command {
    arguments command;
    process_options options;
};

/** Run both to their ends, with a socket between them. A side that waits for
 *  one which ended badly is stopped. */
peers_result run_both(peer_command server, peer_command client);

/** What starts a program with the namespaces of a pod. */
inline constexpr char in_a_pod[] =
    "unshare --user --map-root-user --pid --fork --kill-child --mount-proc "
    "--net --ipc --uts --";

class two_peers : public tools {
protected:
    /** Both run to their ends. */
    [[nodiscard]] peers_result run_peers(const peers_case &what) const;

    /** Another program of the test tools that is run as "PROGRAM ROLE
     *  ARGUMENTS" on both sides, with a socket. */
    [[nodiscard]] static peers_result run_pair(const std::string &program,
                                               const arguments &more,
                                               const process_options &options);

    /** Both ended well, printed this, and complained of nothing. */
    static void expect_well(const peers_result &result,
                            const std::string &of_client,
                            const std::string &of_server);

    /** That of @ref run_peers. */
    static void expect_all_sent(const peers_result &result)
    {
        expect_well(result, "all sent", "all received");
    }
};

} // namespace gaudi::test
