/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * ucx-gaudi: runs programs with the Gaudi transports loaded.
 */
#include "launcher/check.h"
#include "launcher/command_line.h"
#include "launcher/info.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include <unistd.h>

namespace {

/* As a shell does it: not found, or not executable. */
constexpr int exit_not_found      = 127;
constexpr int exit_not_executable = 126;
constexpr int exit_usage          = 2;
constexpr int exit_failure        = 1;

std::string make_version()
{
    const auto releases =
        launcher::installed_releases(launcher::find_installation());
    return "ucx-gaudi " UCX_GAUDI_VERSION "\n" +
           (releases.empty()
                ? std::string("no modules")
                : "modules for UCX " + launcher::to_text(releases)) +
           "\n";
}

/* Become the command; returns when that fails. */
int execute(char **command)
{
    execvp(command[0], command);
    const int error = errno;
    std::fprintf(stderr, "ucx-gaudi: cannot run '%s': %s\n", command[0],
                 std::strerror(error));
    return (error == ENOENT) ? exit_not_found : exit_not_executable;
}

int show(const launcher::installation &files,
         const launcher::command_line &line)
{
    if (line.wanted.emulate) {
        launcher::set_variables(launcher::make_emulator_variables(line.wanted));
    }
    const launcher::report found = launcher::make_report(
        files, {}, (*line.command != nullptr) ? *line.command : "");
    return launcher::print(line.has('j') ? launcher::to_json(found)
                                         : launcher::to_text(found),
                           found.usable ? 0 : exit_failure);
}

int report(const launcher::problems &found)
{
    for (const launcher::problem &one : found) {
        std::fprintf(stderr, "ucx-gaudi: %s (%s)\n", one.what.c_str(),
                     one.fix.c_str());
    }
    return found.empty() ? 0 : exit_failure;
}

int start(const launcher::command_line &line)
{
    const launcher::request &wanted    = line.wanted;
    const launcher::installation files = launcher::find_installation();
    if (line.chosen == &launcher::info) {
        return show(files, line);
    }
    if (line.chosen == &launcher::check) {
        return launcher::show_check(files, line.wanted, line.to_check,
                                    UCX_GAUDI_VERSION);
    }
    launcher::found_ucx ucx;
    if (wanted.slot || !launcher::can_be_preloaded(files)) {
        ucx = launcher::find_ucx();
    }
    const launcher::loading how =
        launcher::choose_loading(files, wanted.slot, ucx);
    if (report(launcher::find_obstacles(files, wanted, how, ucx)) != 0) {
        return exit_failure;
    }
    const launcher::variables values =
        launcher::make_variables(files, wanted, how);
    if (line.chosen == &launcher::env) {
        return launcher::print(launcher::to_exports(values), 0);
    }
    launcher::set_variables(values);
    return execute(line.command);
}

int serve(const launcher::command_line &line)
{
    if (line.has('h')) {
        return launcher::print(launcher::make_help(*line.chosen), 0);
    }
    if (line.has('v')) {
        return launcher::print(make_version(), 0);
    }
    if (!line.wrong.empty()) {
        const std::string text = line.wrong + "\nSee " +
                                 launcher::call_of(*line.chosen) + " --help.";
        std::fprintf(stderr, "ucx-gaudi: %s\n", text.c_str());
        return exit_usage;
    }
    return start(line);
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return serve(launcher::read_command_line(argc, argv));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "ucx-gaudi: %s\n", error.what());
        return exit_failure;
    }
}
