#include "gtest/tools/kernel_double.h"

#include <cstdlib>
#include <filesystem>

namespace gaudi::test {

namespace {

constexpr char driver[]   = "UCX_GAUDI_DRIVER";
constexpr char emulate[]  = "--emulate";
constexpr char the_file[] = GAUDI_BUILD_DIR "/lib/libkernel_double.so";

/* The library that is tested; nullptr without the double. */
const char *tested_library()
{
    return (std::getenv("KERNEL_DOUBLE_KERNEL") != nullptr)
               ? std::getenv("GAUDI_TEST_HLTHUNK")
               : nullptr;
}

} // namespace

environment above_kernel_double(environment variables)
{
    const char *library = tested_library();
    if (library == nullptr) {
        return variables;
    }
    std::string &list = variables["LD_PRELOAD"];
    list              = the_file + (list.empty() ? "" : ":" + list);
    const auto found  = variables.find(driver);
    if ((found != variables.end()) && (found->second == "emulator")) {
        found->second = library;
    }
    return variables;
}

arguments without_emulator(arguments options, arguments &settings_p)
{
    const char *library = tested_library();
    if (library == nullptr) {
        return options;
    }
    arguments left;
    for (const std::string &option : options) {
        if (!option.starts_with(emulate)) {
            left.push_back(option);
            continue;
        }
        /* For programs that are linked with a libhl-thunk.so, too. */
        const std::string folder =
            std::filesystem::path(library).parent_path().string();
        settings_p.push_back(std::string(driver) + "=" + library);
        settings_p.push_back("LD_LIBRARY_PATH=" + folder);
        if (option != emulate) {
            settings_p.push_back("HLTHUNK_EMU_DEVICES=" +
                                 option.substr(sizeof(emulate)));
        }
    }
    return left;
}

} // namespace gaudi::test
