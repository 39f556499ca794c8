#include "gtest/tools/two_peers.h"

#include <thread>

#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

struct sockets {
    int ends[2] = {-1, -1};

    sockets()
    {
        EXPECT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    }
    ~sockets() { close_both(); }
    sockets(const sockets &)            = delete;
    sockets &operator=(const sockets &) = delete;

    void close_both()
    {
        for (int &end : ends) {
            close(end);
            end = -1;
        }
    }
};

void append(arguments &to, const arguments &more)
{
    to.insert(to.end(), more.begin(), more.end());
}

/* Run both to their ends. */
peers_result run_both(const arguments &server_command,
                      process_options server_options,
                      const arguments &client_command,
                      process_options client_options)
{
    sockets connection;
    server_options.inherited_fd = connection.ends[0];
    client_options.inherited_fd = connection.ends[1];
    process server(server_command, server_options);
    process client(client_command, client_options);
    connection.close_both();

    peers_result result;
    while (!client.has_ended() && !server.has_ended() && !client.is_late()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    /* Of a side that ended badly the other one may not hear. */
    if (server.has_ended()) {
        result.server = server.wait();
        result.client =
            (result.server.exit_code == 0) ? client.wait() : client.stop();
    } else {
        result.client = client.wait();
        result.server =
            (result.client.exit_code == 0) ? server.wait() : server.stop();
    }
    return result;
}

} // namespace

peers_result two_peers::run_peers(const peers_case &what) const
{
    const auto command = [&](const std::string &role, const arguments &prefix,
                             const arguments &more) {
        arguments peer{GAUDI_TOOLS_DIR "/ucp_peer", role, what.traffic};
        append(peer, what.options);
        append(peer, more);
        arguments result = prefix;
        append(result, under_launcher(peer, what.launcher_options));
        return result;
    };
    process_options options        = with(what.variables);
    options.deadline               = std::chrono::seconds(90);
    process_options server_options = options;
    for (const auto &[name, value] : what.server_variables) {
        server_options.variables[name] = value;
    }
    return run_both(command("server", what.server_prefix, what.server_options),
                    server_options, command("client", what.client_prefix, {}),
                    options);
}

peers_result two_peers::run_pair(const std::string &program,
                                 const arguments &more,
                                 const process_options &options)
{
    const auto command = [&](const char *role) {
        arguments peer{GAUDI_TOOLS_DIR "/" + program, role};
        append(peer, more);
        return under_launcher(peer);
    };
    return run_both(command("server"), options, command("client"), options);
}

void two_peers::expect_all_sent(const peers_result &result)
{
    EXPECT_TRUE(is_quiet_success(result.client)) << "client";
    EXPECT_TRUE(is_quiet_success(result.server)) << "server";
    EXPECT_THAT(result.client.output, HasSubstr("all sent"));
    EXPECT_THAT(result.server.output, HasSubstr("all received"));
}

} // namespace gaudi::test
