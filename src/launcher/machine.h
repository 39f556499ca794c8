/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * This machine as the kernel shows it, before any driver library is asked, and
 * what of it users have to mend; the UCX on it; and what the environment says.
 * Reads sysfs and the names of device files.
 */
#pragma once

#include "hlthunk_shim/report/report.h"
#include "util/text.h"

#include <compare>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace launcher {

using gaudi::util::to_printable;

using gaudi::shim::machine;
using gaudi::shim::problem;
using gaudi::shim::problems;

/** Whether there is a device file of a card. */
bool has_nodes(const machine &where);

/** One problem for all device files that this user may not open, if any. */
problems find_closed_nodes(const machine &where);

/** Gaudi cards on the PCI bus, with or without a device file. */
unsigned count_pci_cards(const machine &where);

/* --- the UCX of programs ---------------------------------------------------*/

/** As in "1.13", without the patch level: what a module is built for. */
struct ucx_release {
    unsigned major = 0;
    unsigned minor = 0;

    /* clang-tidy 14 sees the 0 that the compiler writes for this.
     * NOLINTNEXTLINE(modernize-use-nullptr) */
    auto operator<=>(const ucx_release &other) const = default;
};

std::string to_string(const ucx_release &release);

/** @return Nothing when the text is no such number. */
std::optional<ucx_release> parse_release(const std::string &text);

/** Modules can be built from this release on. */
inline constexpr ucx_release oldest_release = {1, 13};

/** UCX reads UCX_PLUGIN_PATH, and loads modules of any name, from this one on.
 */
inline constexpr ucx_release first_with_plugins = {1, 22};

struct found_ucx {
    std::optional<ucx_release> release; /**< none: it cannot be loaded */
    std::string version;                /**< with the patch level */
    std::string error;                  /**< why there is no release */
    std::string libucp;                 /**< the file, links resolved */
    std::filesystem::path libucs;       /**< as the dynamic linker found it */
    std::string of;                     /**< whose it is */
    void *handle = nullptr;             /**< of libucp */

    /** For messages. */
    [[nodiscard]] std::string name() const
    {
        return "UCX " + version + " at " + libucp;
    }
};

/** Load libucp into this process, and ask it: that of a program that is linked
 *  with it, or the one that the dynamic linker finds. */
found_ucx find_ucx(const std::string &program = "");

/* --- variables of this process ---------------------------------------------*/

/** "" if there is none. */
std::string get_variable(const char *name);

/** The entries of a list. Empty ones are entries: the current directory, in
 * some lists. An empty list has none. */
std::vector<std::string> split(const std::string &list, const char *separators);

} // namespace launcher
