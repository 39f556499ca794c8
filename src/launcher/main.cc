/**
 * ucx-gaudi: runs programs with the Gaudi transports loaded.
 */
#include "launcher/cached_links.h"
#include "launcher/environment.h"
#include "launcher/info.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <unistd.h>

namespace {

/* As a shell does it: not found, or not executable. */
constexpr int exit_not_found      = 127;
constexpr int exit_not_executable = 126;
constexpr int exit_usage          = 2;
constexpr int exit_failure        = 1;

constexpr char about_run[] =
    "COMMAND replaces ucx-gaudi, with a few variables set: LD_PRELOAD, or "
    "LD_LIBRARY_PATH with --slot, or UCX_PLUGIN_PATH with --plugin; with "
    "--emulate also UCX_GAUDI_DRIVER, HLTHUNK_EMU_DEVICES and "
    "LD_LIBRARY_PATH. Open MPI's are set unless they are set already, so that "
    "it uses UCX for everything: OMPI_MCA_pml and OMPI_MCA_osc (ucx), "
    "OMPI_MCA_opal_common_ucx_tls and OMPI_MCA_opal_common_ucx_devices (any). "
    "With --slot and --plugin, gaudi_copy in UCX_TLS becomes "
    "the transport's name, gaudi_cpy. --slot for a UCX that is not the "
    "installed one makes a folder of links in the user's cache.\n"
    "\n"
    "Exit code: COMMAND's; 127 when it is not found and 126 when it cannot be "
    "executed; 1 when a part of ucx-gaudi is missing or cannot be used from "
    "where it is; 2 for a wrong command line.";

constexpr char about_env[] =
    "Prints lines for a POSIX shell, and nothing else, on stdout:\n"
    "  eval \"$(ucx-gaudi env --emulate)\" && mpirun PROGRAM\n"
    "Entries of LD_PRELOAD, LD_LIBRARY_PATH and UCX_PLUGIN_PATH that the "
    "environment has are kept; evaluated twice, nothing is added twice.\n"
    "\n"
    "Exit code: 0; 1 when a part of ucx-gaudi is missing or cannot be used "
    "from where it is; 2 for a wrong command line.";

constexpr char about_info[] =
    "Opens no card. One line each, its first word the same in every version: "
    "driver, ucx, module, preload, slot, plugin; between them a table with one "
    "card per line:\n"
    "  index    in UCX_GAUDI_DEVICES\n"
    "  module   id on the board\n"
    "  numa     node of the CPUs near it, - when sysfs does not know\n"
    "  HBM      memory of the card, and how much of it is free\n"
    "  state    free; ours: a process of this user has it; busy: somebody "
    "else has it; reset: it is back in seconds; broken: its driver has given "
    "it up; unknown: the driver library cannot tell\n"
    "  kind     hardware or emulator\n"
    "  held by  processes, as far as this user can see them\n"
    "module is the one for the UCX found, and the releases of UCX that have "
    "one. preload, slot and plugin are the ways to load it: active in this "
    "environment, not active, broken, or none in the UCX found. What stands in "
    "the way comes last, as lines 'missing' and 'to mend'. The UCX is the one "
    "that a program without a run path of its own gets. --json writes the "
    "same facts as one object, sizes in bytes, null for what is not known.\n"
    "\n"
    "Exit code: 0 when the transports would work with at least one card that "
    "is free (or unknown), 1 otherwise; 2 for a wrong command line.";

std::string make_version()
{
    const auto releases =
        launcher::installed_releases(launcher::find_installation());
    std::string text = "ucx-gaudi " UCX_GAUDI_VERSION "\n";
    text += releases.empty() ? "no modules"
                             : "modules for UCX " + launcher::to_text(releases);
    return text;
}

/* Options and what they set. */
class command_line {
public:
    command_line()
    {
        app_.set_version_flag("--version", make_version,
                              "Print the version, and which UCX it is for");
        app_.footer("ucx-gaudi SUBCOMMAND --help tells more.");
        app_.failure_message([](const CLI::App *, const CLI::Error &error) {
            return std::string("ucx-gaudi: ") + error.what() +
                   "\nRun with --help for more information.\n";
        });
        run_  = add("run",
                    "Run a program with the transports loaded: "
                     "ucx-gaudi run [OPTIONS] [--] COMMAND...",
                    about_run);
        env_  = add("env", "Print the variables that run sets, for eval",
                    about_env);
        info_ = add("info", "List the cards, the UCX and what is missing",
                    about_info);
        info_->add_flag("--json", json_, "Write the same as a JSON object")
            ->disable_flag_override();
        for (CLI::App *command : {run_, env_}) {
            CLI::Option *slot =
                command
                    ->add_flag("--slot", slot_,
                               "Let UCX's own loader find the module, instead "
                               "of preloading a library")
                    ->disable_flag_override();
            command
                ->add_flag("--plugin", plugin_,
                           "Let UCX find the module by UCX_PLUGIN_PATH: UCX "
                           "1.22 and newer")
                ->disable_flag_override()
                ->excludes(slot);
        }
    }

    /** @return Exit code, or -1 to go on. */
    int parse(int argc, const char *const *argv)
    {
        try {
            app_.parse(argc, argv); /* which names what it does not know */
            if (app_.get_subcommands().empty()) {
                throw CLI::RequiredError("A subcommand");
            }
        } catch (const CLI::ParseError &error) {
            return (app_.exit(error) == 0) ? 0 : exit_usage;
        }
        return -1;
    }

    [[nodiscard]] bool is_run() const { return run_->parsed(); }
    [[nodiscard]] bool is_env() const { return env_->parsed(); }

    [[nodiscard]] bool is_json() const { return json_; }

    [[nodiscard]] launcher::request request() const
    {
        bool emulate = false;
        for (const CLI::App *command : {run_, env_, info_}) {
            emulate = emulate || (command->count("--emulate") > 0);
        }
        auto how = launcher::loading::preload;
        if (slot_) {
            how = launcher::loading::slot;
        } else if (plugin_) {
            how = launcher::loading::plugin;
        }
        return {how, emulate, cards_};
    }

private:
    CLI::App *add(const char *name, const char *description, const char *footer)
    {
        CLI::App *command = app_.add_subcommand(name, description);
        command->footer(footer);
        command
            ->add_option("--emulate", cards_,
                         "On the software Gaudi, in a box with this many "
                         "cards (default: HLTHUNK_EMU_DEVICES, or 8)")
            ->expected(0, 1)
            ->type_name("[=CARDS]")
            ->check(CLI::Range(1, 64).description(""));
        return command;
    }

    CLI::App app_{
        "Runs programs with Gaudi transports for the UCX that they use."};
    CLI::App *run_;
    CLI::App *env_;
    CLI::App *info_;
    unsigned cards_ = 0;
    bool slot_      = false;
    bool plugin_    = false;
    bool json_      = false;
};

bool is_dashes(const char *argument)
{
    return std::string_view(argument) == "--";
}

/* Where run's command begins, or the "--" in front of it; the end for what is
 * not run. */
char **find_command(char **argv, char **end)
{
    char **dashes = std::find_if(argv, end, is_dashes);
    if ((end - argv < 2) || (std::string_view(argv[1]) != "run")) {
        return dashes;
    }
    bool may_be_count = false;
    for (char **at = argv + 2; at != dashes; ++at) {
        const std::string_view text = *at;
        const bool is_count =
            may_be_count && (text.find_first_not_of("0123456789") == text.npos);
        if (!text.empty() && !text.starts_with('-') && !is_count) {
            return at;
        }
        may_be_count = (text == "--emulate");
    }
    return dashes;
}

/* CLI11 takes such an argument for none. */
bool is_empty(const char *argument)
{
    return (*argument == '\0') || (std::string_view(argument) == "--emulate=");
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

int print(const std::string &text, int code)
{
    if ((std::fputs(text.c_str(), stdout) < 0) || (std::fflush(stdout) != 0)) {
        std::fprintf(stderr, "ucx-gaudi: cannot write: %s\n",
                     std::strerror(errno));
        return exit_failure;
    }
    return code;
}

int info(const launcher::installation &files, const launcher::request &wanted,
         bool json)
{
    if (wanted.emulate) {
        launcher::set_variables(launcher::make_emulator_variables(wanted));
    }
    const launcher::report found = launcher::make_report(files);
    return print(json ? launcher::to_json(found) : launcher::to_text(found),
                 found.usable ? 0 : exit_failure);
}

/* What keeps the request from being met, when all is done for it. */
launcher::problems prepare(launcher::installation &files,
                           const launcher::request &wanted,
                           const launcher::found_ucx &ucx)
{
    launcher::choose_preload(files);
    if (wanted.how == launcher::loading::slot) {
        launcher::choose_slot(files, ucx);
    }
    launcher::problems found = launcher::find_obstacles(files, wanted, ucx);
    if (found.empty() && (wanted.how == launcher::loading::slot)) {
        found = launcher::make_slot(files);
    } else if (found.empty() && (wanted.how == launcher::loading::preload)) {
        found = launcher::make_preload(files);
    }
    return found;
}

/* @param command  What follows "--", or nullptr. */
int start(const command_line &options, char **command)
{
    const launcher::request wanted = options.request();
    launcher::installation files   = launcher::find_installation();
    if (!options.is_run() && !options.is_env()) {
        return info(files, wanted, options.is_json());
    }
    launcher::found_ucx ucx;
    if (wanted.how != launcher::loading::preload) {
        ucx = launcher::find_ucx();
    }
    const launcher::problems found = prepare(files, wanted, ucx);
    for (const launcher::problem &one : found) {
        std::fprintf(stderr, "ucx-gaudi: %s; to mend it, %s\n",
                     one.what.c_str(), one.mend.c_str());
    }
    if (!found.empty()) {
        return exit_failure;
    }
    const launcher::variables values =
        launcher::make_variables(files, wanted, ucx);
    if (options.is_env()) {
        return print(launcher::to_exports(values), 0);
    }
    launcher::set_variables(values);
    return execute(command);
}

} // namespace

int main(int argc, char **argv)
{
    /* What follows is the command's own, options included. */
    char **end              = argv + argc;
    char **own_end          = find_command(argv, end);
    const bool has_dashes   = (own_end != end) && is_dashes(*own_end);
    char **command          = has_dashes ? own_end + 1 : own_end;
    const auto own_argument = static_cast<int>(own_end - argv);

    if (std::any_of(argv, own_end, is_empty)) {
        std::fprintf(stderr, "ucx-gaudi: an argument is empty\n");
        return exit_usage;
    }
    try {
        command_line options;
        const int code = options.parse(own_argument, argv);
        if (code >= 0) {
            return code;
        }
        if (options.is_run() && (command == end)) {
            std::fprintf(stderr, "ucx-gaudi: no command is given. Usage: "
                                 "ucx-gaudi run [OPTIONS] [--] COMMAND...\n");
            return exit_usage;
        }
        if (!options.is_run() && has_dashes) {
            std::fprintf(stderr, "ucx-gaudi: only run takes a command\n");
            return exit_usage;
        }
        return start(options, command);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "ucx-gaudi: %s\n", error.what());
        return exit_failure;
    }
}
