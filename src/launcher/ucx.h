/**
 * The UCX that a program gets in this environment.
 */
#pragma once

#include <filesystem>
#include <string>

namespace launcher {

struct found_ucx {
    std::string version;                    /**< empty: it cannot be loaded */
    std::string error;                      /**< why */
    std::string ucp;                        /**< the file of libucp */
    std::filesystem::path libucs_directory; /**< as the loader found it */
};

/** Load libucp into this process, once, and ask it. */
found_ucx find_ucx();

/** Whether a file is loaded in this process. */
bool is_loaded(const std::filesystem::path &file);

} // namespace launcher
