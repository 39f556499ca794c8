/**
 * The files that belong to this launcher: ../lib, seen from its own place.
 */
#pragma once

#include "launcher/machine.h"
#include "launcher/ucx.h"

#include <filesystem>
#include <optional>
#include <vector>

namespace launcher {

/** How the loader, which opens the module, gets into a program. */
enum class loading {
    preload, /**< LD_PRELOAD names it */
    slot,    /**< UCX finds it under another module's name */
    plugin   /**< UCX finds it by UCX_PLUGIN_PATH */
};

struct installation {
    std::filesystem::path directory; /**< of libraries */
    std::filesystem::path loader;
    std::filesystem::path preload;     /**< the loader, for LD_PRELOAD; maybe
                                            not among the libraries */
    std::filesystem::path modules;     /**< a directory with one per release */
    std::filesystem::path plugin;      /**< a directory: for UCX_PLUGIN_PATH */
    std::filesystem::path emulator;    /**< a directory: for LD_LIBRARY_PATH */
    std::filesystem::path slot;        /**< a directory: for LD_LIBRARY_PATH */
    std::filesystem::path slot_libucs; /**< in the slot */
    std::filesystem::path slot_module; /**< in the slot; empty: the UCX that was
                                            found loads no modules */
    /** Of a slot that is made when it is needed: the UCX that it is for. */
    std::filesystem::path slot_ucx;
};

/** What to do about a missing file of an installation, or of a build. */
inline constexpr char reinstall[] =
    "install ucx-gaudi again, or build it again (scripts/quickstart)";

/** What to do about a missing emulator, which Debian has in its own package. */
inline constexpr char install_emulator[] =
    "install the package hl-thunk-emulator, or install ucx-gaudi again";

/** The driver library in the emulator's directory. */
inline constexpr char driver_library[] = "libhl-thunk.so";

/**
 * Where everything has to be.
 *
 * @throws std::filesystem::filesystem_error when /proc does not tell.
 */
installation find_installation();

/** Whether LD_PRELOAD, which is split at spaces, can name a file. */
bool can_be_preloaded(const std::filesystem::path &file);

/** The releases of UCX that have a module, the oldest one first. */
std::vector<ucx_release> installed_releases(const installation &files);

/** As "1.13, 1.18"; "" for none. */
std::string to_text(const std::vector<ucx_release> &releases);

/** Where the module for a release is, or would be. */
std::filesystem::path module_for(const installation &files,
                                 const ucx_release &release);

/** What keeps the loader from getting into programs in this way.
 *
 * @param ucx  What find_ucx has found. */
problems find_obstacles(const installation &files, loading how,
                        const found_ucx &ucx);

/** What keeps programs from finding the emulator. */
problems find_emulator_obstacles(const installation &files);

/** What keeps every UCX from getting a module. */
problems find_missing_modules(const installation &files);

/** What keeps a UCX from getting a module: there is none for its release, or it
 *  cannot be read. */
std::optional<problem> find_module_obstacle(const installation &files,
                                            const found_ucx &ucx);

} // namespace launcher
