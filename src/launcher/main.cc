/**
 * ucx-gaudi: runs a program with the Gaudi transports loaded.
 */
#include "launcher/environment.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <unistd.h>

namespace {

/* As a shell does it: not found, or not executable. */
constexpr int exit_not_found      = 127;
constexpr int exit_not_executable = 126;
constexpr int exit_usage          = 2;

/* Become the command; returns when that fails. */
int run(char **command)
{
    execvp(command[0], command);
    const int error = errno;
    std::fprintf(stderr, "ucx-gaudi: cannot run '%s': %s\n", command[0],
                 std::strerror(error));
    return (error == ENOENT) ? exit_not_found : exit_not_executable;
}

} // namespace

int main(int argc, char **argv)
{
    /* What follows "--" is the command's own, options included. */
    char **end              = argv + argc;
    char **dashes           = std::find(argv, end, std::string_view("--"));
    const bool has_command  = (dashes != end) && (dashes + 1 != end);
    const auto own_argument = static_cast<int>(dashes - argv);

    CLI::App app{"Runs programs with Gaudi transports for the installed UCX."};
    app.require_subcommand(1);
    app.set_version_flag("--version", UCX_GAUDI_VERSION);
    CLI::App *run_command =
        app.add_subcommand("run", "Run a command with the transports loaded");

    unsigned cards       = 0;
    CLI::Option *emulate = run_command->add_option(
        "--emulate", cards,
        "On the software Gaudi, in a box with this many cards (default: "
        "HLTHUNK_EMU_DEVICES, or 8)");
    emulate->expected(0, 1)->check(CLI::Range(1, 64));
    CLI11_PARSE(app, own_argument, argv);

    if (!has_command) {
        std::fprintf(stderr, "ucx-gaudi: no command is given. Usage: ucx-gaudi "
                             "run [OPTIONS] -- COMMAND...\n");
        return exit_usage;
    }
    std::string error;
    if (!launcher::set_environment(emulate->count() > 0, cards, error)) {
        std::fprintf(stderr, "ucx-gaudi: %s\n", error.c_str());
        return 1;
    }
    return run(dashes + 1);
}
