/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/command_line.h"

#include <cstring>
#include <iterator>
#include <string_view>

#include <getopt.h>

namespace launcher {

namespace {

constexpr unsigned most_cards   = 64;
constexpr unsigned most_card    = 9999; /* name, see max_mapping_number */
constexpr unsigned most_seconds = 3600;

/* Options, each with a letter, of which only -h is one for users, too. */
constexpr option options[] = {
    {"help", no_argument, nullptr, 'h'},
    {"version", no_argument, nullptr, 'v'},
    {"emulate", optional_argument, nullptr, 'e'},
    {"slot", no_argument, nullptr, 's'},
    {"json", no_argument, nullptr, 'j'},
    {"card", required_argument, nullptr, 'c'},
    {"reset", no_argument, nullptr, 'r'},
    {"timeout", required_argument, nullptr, 't'},
    {"output", required_argument, nullptr, 'o'},
    {},
};

/* In the same order. */
constexpr const char *about_options[] = {
    "  -h, --help           Print this help and exit\n",
    "  --version            Print the version, and which UCX it is for\n",
    "  --emulate [=CARDS]   On the software Gaudi, in a box with this many "
    "cards,\n"
    "                       1 to 64 (default: HLTHUNK_EMU_DEVICES, or 8)\n",
    "  --slot               Let UCX's own loader find the module, instead of\n"
    "                       preloading a library\n",
    "  --json               Write the same as a JSON object\n",
    "  --card N             Check this card, and the pairs that it is in\n",
    "  --reset              Have the card reset itself, too\n",
    "  --timeout SECONDS    For each step, 2 to 3600 (default: 120)\n",
    "  --output FILE        Where to write the report\n",
};

} // namespace

const subcommand none = {
    "", "Runs programs with Gaudi transports for the UCX that they use.",
    " SUBCOMMAND [OPTIONS]", "hv",
    R"about(Subcommands:
  run    Run a program with the transports loaded
  env    Print the variables that run sets, for eval
  info   List the cards, the UCX and what is missing
  check  Try what the transports take for granted of a card

ucx-gaudi SUBCOMMAND --help tells more.
)about"};

const subcommand run = {
    "run", "Run a program with the transports loaded.",
    " [OPTIONS] [--] COMMAND...", "hes",
    R"about(COMMAND replaces ucx-gaudi, with a few variables set: LD_PRELOAD, or
LD_LIBRARY_PATH with --slot, or UCX_PLUGIN_PATH where the path of ucx-gaudi has
a space and UCX is 1.22 or newer; with --emulate also UCX_GAUDI_DRIVER,
HLTHUNK_EMU_DEVICES and LD_LIBRARY_PATH. Open MPI's are set unless they are set
already, so that it uses UCX for everything:
OMPI_MCA_opal_common_ucx_tls and OMPI_MCA_opal_common_ucx_devices (any),
OMPI_MCA_pml and OMPI_MCA_osc (ucx), OMPI_MCA_accelerator (^cuda,rocm). Its
OMPI_MCA_opal_mca_base_component_path gets our components in front.
Without LD_PRELOAD gaudi_copy in UCX_TLS becomes the transport's name, gaudi_cpy.
--slot is for the UCX that ucx-gaudi was built for.

Exit code: COMMAND's; 127 when it is not found and 126 when it cannot be
executed; 1 when a part of ucx-gaudi is missing or cannot be used from where it
is; 2 for a wrong command line.
)about"};

const subcommand env = {
    "env", "Print the variables that run sets, for eval.", " [OPTIONS]", "hes",
    R"about(Prints lines for a POSIX shell, and nothing else, on stdout:
  eval "$(ucx-gaudi env --emulate)" && mpirun PROGRAM
Jobs of that shell without Gaudi memory work, too: Open MPI prefers UCX there
(OMPI_MCA_pml_ucx_priority, OMPI_MCA_osc_ucx_priority), and leaves out nothing
(OMPI_MCA_pml=^none, OMPI_MCA_osc=^pt2pt).
Entries of LD_PRELOAD, LD_LIBRARY_PATH and UCX_PLUGIN_PATH that the environment
has are kept; evaluated twice, nothing is added twice.

Exit code: 0; 1 when a part of ucx-gaudi is missing or cannot be used from where
it is; 2 for a wrong command line.
)about"};

const subcommand info = {"info", "List the cards, the UCX and what is missing.",
                         " [OPTIONS] [--] [PROGRAM]", "hej",
                         R"about(Opens no card. A table with one card per line:
  card     in UCX_GAUDI_DEVICES
  module   id on the board
  numa     node of the CPUs near it, - when sysfs does not know
  HBM      memory of the card, and how much of it is free
  state    free; ours: a process of this user has it; busy: somebody else has
           it; reset: it is back in seconds; broken: its driver has given it
           up; unknown: the driver library cannot tell
  held by  processes, as far as this user can see them
Then one line each, with the same first word in every version:
  pairs    over what pairs of cards go, and why: ports, or host for host memory;
           UCX_GAUDI_IPC_ROUTES chooses
  driver   the driver library
  ucx      the UCX of PROGRAM, if it is linked with one; else the one of programs
           without a run path
  module   the one for that UCX, and the releases of UCX that have one
  preload  the library that run preloads: active in this environment, not active,
           or broken (plugin where nothing can be preloaded)
Problems come last, each with a line 'fix:'. Settings are those of the
environment and of UCX's configuration files (ucx.conf, UCX_CONFIG_DIR). --json
writes the same facts as one object, sizes in bytes, null for what is not known.

Exit code: 0 when the transports would work with at least one card that is free
(or unknown), 1 otherwise; 2 for a wrong command line.
)about"};

const subcommand check = {
    "check", "Try what the transports take for granted of a card.",
    " [OPTIONS]", "hecrto",
    R"about(Tries the first free card (or that of --card, a name as in ucx-gaudi info) step
by step, from harmless to heavier, each in a process of its own, and every pair
of free cards: pairs that are alike share a line. Takes the cards: no other program can have them meanwhile. A line
for each step:
  ok        as expected
  absent    this machine has not what it is about
  FAILED    it is not as expected; what that means comes last
  DIED      the step was ended by a signal
  HUNG      the step had no answer in its time
  left out  what it builds on does not work
Writes all that explains it to a file to attach to a report of a bug (it has
paths of files, and variables that begin with UCX_GAUDI_ and the like):
ucx-gaudi-check-TIME.txt in TMPDIR, or /tmp; or that of --output.

Exit code: 0 when nothing is wrong; 1 otherwise, and when there is no card to
check; 2 for a wrong command line.
)about"};

namespace {

/* getopt takes the beginning of a name for the name. */
bool is_abbreviated(std::string_view word, const char *name)
{
    return word.starts_with("--") &&
           (word.substr(2, word.find('=') - 2) != name);
}

bool is_number(const char *word)
{
    return (word != nullptr) && (*word != '\0') &&
           (word[std::strspn(word, "0123456789")] == '\0');
}

/* A word that is no option. Returns whether the command begins with it. */
bool read_word(const char *word, command_line &line)
{
    if (*word == '\0') {
        line.complain("an argument is empty");
        return false;
    }
    if (((line.chosen == &run) || (line.chosen == &info)) &&
        (std::strcmp(word, "-") != 0)) {
        return true;
    }
    for (const subcommand *one : {&run, &env, &info, &check}) {
        if ((line.chosen == &none) && (std::strcmp(word, one->name) == 0)) {
            line.chosen = one;
            return false;
        }
    }
    line.complain(std::string("unexpected argument: ") + word);
    return false;
}

/* A number is behind "=", or the next word. */
void read_emulate(char **argv, command_line &line)
{
    if (line.has('e')) {
        line.complain("--emulate is given twice");
    }
    line.wanted.emulate = true;
    const char *count   = optarg;
    if ((count == nullptr) && is_number(argv[optind])) {
        count = argv[optind++];
    }
    if (count != nullptr) {
        line.wanted.cards =
            gaudi::util::parse_number(count).value_or(most_cards + 1);
        if ((line.wanted.cards < 1) || (line.wanted.cards > most_cards)) {
            line.complain(std::string("--emulate takes 1 to 64 cards, not '") +
                          count + "'");
        }
    }
}

/* The number that follows an option. */
unsigned read_option(const char *name, unsigned least, unsigned most,
                     command_line &line)
{
    const auto number = gaudi::util::parse_number(optarg);
    if (!number.has_value() || (*number < least) || (*number > most)) {
        line.complain(std::string(name) + " takes " + std::to_string(least) +
                      " to " + std::to_string(most) + ", not '" + optarg + "'");
        return least;
    }
    return *number;
}

/* What only check takes. */
void read_check(int letter, command_line &line)
{
    switch (letter) {
    case 'c':
        line.to_check.card = read_option("--card", 0, most_card, line);
        break;
    case 't':
        line.to_check.limit = std::chrono::seconds(
            read_option("--timeout", 2, most_seconds, line));
        break;
    case 'o':
        line.to_check.output = optarg;
        break;
    default:
        line.to_check.reset |= (letter == 'r');
    }
}

} // namespace

command_line read_command_line(int argc, char **argv)
{
    command_line line;
    const char *word = nullptr;
    opterr           = 0;
    for (;;) {
        int index        = 0;
        word             = argv[optind];
        const int letter = getopt_long(argc, argv, "+h", options, &index);
        if (letter == -1) {
            if ((optind == argc) || (word != argv[optind]) ||
                read_word(word, line)) {
                break;
            }
            ++optind;
        } else if ((std::strchr(line.chosen->takes, letter) == nullptr) ||
                   is_abbreviated(word, options[index].name)) {
            line.complain(std::string("unexpected argument: ") + word);
        } else {
            if (letter == 'e') {
                read_emulate(argv, line);
            }
            read_check(letter, line);
            line.given += static_cast<char>(letter);
        }
    }
    line.command          = argv + optind;
    const bool has_dashes = (word != nullptr) && (word != *line.command);
    if (line.chosen == &none) {
        line.complain("a subcommand is required: run, env, info or check");
    } else if ((line.chosen == &run) && (*line.command == nullptr)) {
        line.complain("no command is given");
    } else if ((line.chosen != &run) && (line.chosen != &info) && has_dashes) {
        line.complain("only run and info take a command");
    }
    line.wanted.slot      = line.has('s');
    line.wanted.for_shell = (line.chosen == &env);
    return line;
}

std::string call_of(const subcommand &of)
{
    return std::string("ucx-gaudi") + (*of.name == '\0' ? "" : " ") + of.name;
}

std::string make_help(const subcommand &of)
{
    std::string text = std::string(of.purpose) + "\nUsage: " + call_of(of) +
                       of.operands + "\n\nOptions:\n";
    for (size_t i = 0; i < std::size(about_options); ++i) {
        if (std::strchr(of.takes, options[i].val) != nullptr) {
            text += about_options[i];
        }
    }
    return text + "\n" + of.about;
}

} // namespace launcher
