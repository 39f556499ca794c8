/**
 * ucx-gaudi: runs a program with the Gaudi transports loaded.
 */
#include "launcher/environment.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

namespace {

/* As a shell does it: not found, or not executable. */
constexpr int exit_not_found      = 127;
constexpr int exit_not_executable = 126;

int run(const std::vector<std::string> &command)
{
    std::vector<char *> arguments;
    for (const std::string &argument : command) {
        arguments.push_back(const_cast<char *>(argument.c_str()));
    }
    arguments.push_back(nullptr);

    execvp(arguments[0], arguments.data());
    const int error = errno;
    std::fprintf(stderr, "ucx-gaudi: cannot run '%s': %s\n", arguments[0],
                 std::strerror(error));
    return (error == ENOENT) ? exit_not_found : exit_not_executable;
}

} // namespace

int main(int argc, char **argv)
{
    CLI::App app{"Runs programs with Gaudi transports for the installed UCX."};
    app.require_subcommand(1);
    app.set_version_flag("--version", UCX_GAUDI_VERSION);

    unsigned cards = 0;
    std::vector<std::string> command;
    CLI::App *run_command =
        app.add_subcommand("run", "Run a command with the transports loaded");
    CLI::Option *emulate = run_command
                               ->add_option("--emulate", cards,
                                            "On the software Gaudi, in a box "
                                            "with this many cards (default 8)")
                               ->expected(0, 1)
                               ->default_str("8")
                               ->check(CLI::Range(1, 64));
    run_command->add_option("command", command, "The command, after --")
        ->required();
    /* What follows the command's name is the command's. */
    run_command->prefix_command(false)->positionals_at_end();

    CLI11_PARSE(app, argc, argv);

    std::string error;
    if (!launcher::set_environment(emulate->count() > 0, cards, error)) {
        std::fprintf(stderr, "ucx-gaudi: %s\n", error.c_str());
        return 1;
    }
    return run(command);
}
