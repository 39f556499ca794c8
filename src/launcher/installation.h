/**
 * The files that belong to this launcher: ../lib, seen from its own place.
 */
#pragma once

#include "launcher/machine.h"

#include <filesystem>

namespace launcher {

/** How the module gets into a program. */
enum class loading {
    preload, /**< LD_PRELOAD names the stub */
    slot     /**< UCX's own loader finds it under another module's name */
};

struct installation {
    std::filesystem::path directory; /**< all that follow are in it */
    std::filesystem::path module;
    std::filesystem::path stub;
    std::filesystem::path emulator;    /**< a directory: for LD_LIBRARY_PATH */
    std::filesystem::path slot;        /**< a directory: for LD_LIBRARY_PATH */
    std::filesystem::path slot_libucs; /**< in the slot */
    std::filesystem::path slot_module; /**< in the slot */
};

/** The driver library in the emulator's directory. */
inline constexpr char driver_library[] = "libhl-thunk.so";

/**
 * Where everything has to be.
 *
 * @throws std::filesystem::filesystem_error when /proc does not tell.
 */
installation find_installation();

/** What keeps the module from being loaded in this way. */
problems find_obstacles(const installation &files, loading how);

/** What keeps programs from finding the emulator. */
problems find_emulator_obstacles(const installation &files);

} // namespace launcher
