/**
 * Which driver library UCX_GAUDI_DRIVER means.
 *
 * The module and the launcher read the variable in the same way through this.
 * Any thread may call it.
 */
#pragma once

#include <string>

namespace gaudi::shim {

struct driver_choice {
    enum class outcome {
        library, /**< load @ref path */
        no_card, /**< nobody asked for a library, and there is no card */
        invalid  /**< the text means nothing */
    };

    outcome result = outcome::invalid;
    std::string path; /**< a file, or a bare name for the loader to find */
};

/** What the text has to be, for messages. */
inline constexpr char driver_syntax[] =
    "auto, hlthunk, emulator, or the path of a library";

/**
 * Read UCX_GAUDI_DRIVER.
 *
 * @param text       Its value.
 * @param directory  Where the module lies: the emulator is beside it.
 * @param dev        Where device nodes are.
 */
driver_choice choose_driver(const std::string &text,
                            const std::string &directory,
                            const std::string &dev = "/dev");

} // namespace gaudi::shim
