/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/two_peers.h"

#include <thread>

#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::test {

peers_result run_both(peer_command server, peer_command client)
{
    int ends[2] = {-1, -1};
    EXPECT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    server.options.inherited_fd = ends[0];
    client.options.inherited_fd = ends[1];
    process at_server(server.command, server.options);
    process at_client(client.command, client.options);
    close(ends[0]);
    close(ends[1]);

    while (!at_client.has_ended() && !at_server.has_ended() &&
           !at_client.is_late()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    /* Of a side that ended badly the other one may not hear. */
    const auto end = [](process &first, process_result &of_first,
                        process &second, process_result &of_second) {
        of_first  = first.wait();
        of_second = (of_first.exit_code != 0) ? second.stop() : second.wait();
    };
    peers_result result;
    if (at_server.has_ended()) {
        end(at_server, result.server, at_client, result.client);
    } else {
        end(at_client, result.client, at_server, result.server);
    }
    return result;
}

peers_result two_peers::run_peers(const peers_case &what) const
{
    const auto peer = [&](const char *role, const arguments &prefix,
                          const environment &variables) {
        const arguments program = joined(
            {GAUDI_TOOLS_DIR "/ucp_peer", role, what.traffic}, what.options);
        peer_command result{
            joined(prefix, under_launcher(program, what.launcher_options)),
            with(what.variables, std::chrono::seconds(90))};
        for (const auto &[name, value] : variables) {
            result.options.variables[name] = value;
        }
        return result;
    };
    return run_both(peer("server", what.server_prefix, what.server_variables),
                    peer("client", what.client_prefix, {}));
}

peers_result two_peers::run_pair(const std::string &program,
                                 const arguments &more,
                                 const process_options &options)
{
    const auto peer = [&](const char *role) {
        return peer_command{
            under_launcher(joined({GAUDI_TOOLS_DIR "/" + program, role}, more)),
            options};
    };
    return run_both(peer("server"), peer("client"));
}

void two_peers::expect_well(const peers_result &result,
                            const std::string &of_client,
                            const std::string &of_server)
{
    EXPECT_TRUE(is_quiet_success(result.client, {of_client})) << "client";
    EXPECT_TRUE(is_quiet_success(result.server, {of_server})) << "server";
}

} // namespace gaudi::test
