/**
 * The UCX that a program without a run path of its own gets.
 */
#pragma once

#include <compare>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace launcher {

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

/** With the old protocols of UCP, from this release on, there is no Gaudi
 *  memory. */
inline constexpr ucx_release first_without_old_protocols = {1, 16};

/** UCX reads UCX_PLUGIN_PATH, and loads modules of any name, from this one on.
 */
inline constexpr ucx_release first_with_plugins = {1, 22};

struct found_ucx {
    std::optional<ucx_release> release; /**< none: it cannot be loaded */
    std::string version;                /**< with the patch level */
    std::string error;                  /**< why there is no release */
    std::string libucp;                 /**< the file, links resolved */
    std::filesystem::path libucs;       /**< as the dynamic linker found it */
};

/** Load libucp into this process, and ask it. */
found_ucx find_ucx();

/**
 * The names of modules that a UCX of before first_with_plugins loads: a list
 * that is compiled into its libuct, as in ":ib:rdmacm:cma".
 *
 * @param directory  Of its libraries.
 */
std::vector<std::string>
find_module_names(const std::filesystem::path &directory);

} // namespace launcher
