#include "launcher/environment.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace launcher {

namespace {

namespace fs = std::filesystem;

/* Cards of a box, as in the machines that have them. */
constexpr char default_cards[] = "8";

/* Put an entry in front of a colon-separated list, once. */
void prepend(const char *variable, const std::string &entry)
{
    const char *old   = std::getenv(variable);
    std::string value = entry;
    if ((old != nullptr) && (*old != '\0')) {
        const std::string list = std::string(":") + old + ":";
        if (list.find(":" + entry + ":") != std::string::npos) {
            return;
        }
        value += std::string(":") + old;
    }
    setenv(variable, value.c_str(), 1);
}

} // namespace

bool set_environment(bool emulate, unsigned cards, std::string &error)
{
    std::error_code failure;
    const fs::path self = fs::read_symlink("/proc/self/exe", failure);
    const fs::path lib  = self.parent_path().parent_path() / "lib";
    const fs::path stub = lib / "libucx_gaudi_preload.so";

    if (!fs::exists(stub, failure)) {
        error = stub.string() + " is missing; build the project first";
        return false;
    }
    if (stub.string().find_first_of(" :") != std::string::npos) {
        error = "'" + stub.string() +
                "' cannot be preloaded: LD_PRELOAD splits "
                "paths at spaces and colons; move the project elsewhere";
        return false;
    }
    prepend("LD_PRELOAD", stub.string());

    if (emulate) {
        const fs::path emulator = lib / "hlthunk-emu";
        if (!fs::exists(emulator / "libhl-thunk.so", failure)) {
            error = emulator.string() + "/libhl-thunk.so is missing; build the "
                                        "project first";
            return false;
        }
        setenv("UCX_GAUDI_DRIVER", "emulator", 1);
        if (cards > 0) {
            setenv("HLTHUNK_EMU_DEVICES", std::to_string(cards).c_str(), 1);
        } else {
            setenv("HLTHUNK_EMU_DEVICES", default_cards, 0);
        }
        /* For programs that call hl-thunk themselves. */
        prepend("LD_LIBRARY_PATH", emulator.string());
    }
    return true;
}

} // namespace launcher
