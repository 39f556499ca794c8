/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The files that belong to this launcher: ../lib, seen from its own place. And
 * the environment in which programs find them.
 */
#pragma once

#include "launcher/machine.h"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

/** How the loader, which opens the module, gets into a program. */
enum class loading {
    preload, /**< LD_PRELOAD names it */
    slot,    /**< UCX finds it under another module's name */
    plugin   /**< UCX finds it by UCX_PLUGIN_PATH */
};

/** What the command line asks for. */
struct request {
    bool slot      = false;
    bool emulate   = false; /**< use the software Gaudi */
    bool for_shell = false; /**< for jobs without Gaudi memory, too */
    unsigned cards = 0;     /**< of its box; 0 leaves it to the environment */
};

struct installation {
    std::filesystem::path directory; /**< of libraries */
    std::filesystem::path loader;
    std::filesystem::path preload;     /**< the loader, for LD_PRELOAD */
    std::filesystem::path modules;     /**< a directory with one per release */
    std::filesystem::path plugin;      /**< a directory: for UCX_PLUGIN_PATH */
    std::filesystem::path openmpi;     /**< a directory of its components */
    std::filesystem::path emulator;    /**< a directory: for LD_LIBRARY_PATH */
    std::filesystem::path slot;        /**< a directory: for LD_LIBRARY_PATH */
    std::filesystem::path slot_libucs; /**< in the slot */
    std::filesystem::path slot_module; /**< in the slot */
};

/**
 * Where everything has to be.
 *
 * @throws std::filesystem::filesystem_error when /proc does not tell.
 */
installation find_installation();

/** Whether there is such a file, or folder. */
bool is_there(const std::filesystem::path &file);

/** The releases of UCX that have a module, the oldest one first. */
std::vector<ucx_release> installed_releases(const installation &files);

/** As "1.13, 1.18"; "" for none. */
std::string to_text(const std::vector<ucx_release> &releases);

/** Where the module for a UCX is, whose release has one; "" with what is
 *  different if none fits. */
std::filesystem::path module_for(const installation &files,
                                 const found_ucx &ucx, std::string &why);

/** Whether LD_PRELOAD can name the loader: the list has no way to write a space
 *  or a colon of a path. */
bool can_be_preloaded(const installation &files);

/** How the loader gets into programs of a UCX: preloaded, or where that cannot
 *  be, by UCX_PLUGIN_PATH, if UCX reads that.
 *
 *  @param slot  The user asks for it.
 *  @param ucx   What find_ucx has found; preloading does without. */
loading choose_loading(const installation &files, bool slot,
                       const found_ucx &ucx);

/** What keeps the loader from getting into programs in this way. */
problems find_obstacles(const installation &files, loading how,
                        const found_ucx &ucx);

/** What keeps a request from being met in this way. */
problems find_obstacles(const installation &files, const request &wanted,
                        loading how, const found_ucx &ucx);

/** What keeps a UCX from getting a module: there is none for its release, or it
 *  cannot be read. */
std::optional<problem> find_module_obstacle(const installation &files,
                                            const found_ucx &ucx);

/* --- the environment in which a program finds the transports ---------------*/

/** Names and values. */
using variables = std::vector<std::pair<std::string, std::string>>;

/**
 * The variables that meet a request in one way, with their final values.
 *
 * They hold what the environment has now, too; made once more in the
 * environment that has them, they are the same.
 */
variables make_variables(const installation &files, const request &wanted,
                         loading how);

/** The variables of a request that choose the software Gaudi alone. */
variables make_emulator_variables(const request &wanted);

/** Set them in this process. */
void set_variables(const variables &values);

/** Lines for a POSIX shell that set and export them. */
std::string to_exports(const variables &values);

} // namespace launcher
