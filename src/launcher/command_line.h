/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The command line of ucx-gaudi.
 */
#pragma once

#include "launcher/check.h"
#include "launcher/info.h"

#include <string>

namespace launcher {

struct subcommand {
    const char *name;
    const char *purpose;
    const char *operands;
    const char *takes; /**< letters of options */
    const char *about;
};

/** The one of ucx-gaudi itself is `none`. */
extern const subcommand none, run, env, info, check;

struct command_line {
    const subcommand *chosen = &none;
    std::string given; /**< letters of options */
    request wanted;
    check_request to_check;
    char **command = nullptr; /**< what follows the options, or "--" */
    std::string wrong;        /**< the first thing that is */

    [[nodiscard]] bool has(char letter) const
    {
        return given.find(letter) != given.npos;
    }

    void complain(const std::string &text)
    {
        if (wrong.empty()) {
            wrong = to_printable(text);
        }
    }
};

/** Whatever is wrong, all is read: it may ask for help. */
command_line read_command_line(int argc, char **argv);

/** How a subcommand is called. */
std::string call_of(const subcommand &of);

/** What --help says of it. */
std::string make_help(const subcommand &of);

} // namespace launcher
