#include "gtest/tools/needs_of_build.h"

#include <cstdlib>
#include <filesystem>

namespace gaudi::test {

namespace {

constexpr char driver[]        = "UCX_GAUDI_DRIVER";
constexpr char emulate[]       = "--emulate";
constexpr char kernel_double[] = GAUDI_BUILD_DIR "/lib/libkernel_double.so";

/* The library that is tested; nullptr without the double. */
const char *tested_library()
{
    return (std::getenv("KERNEL_DOUBLE_KERNEL") != nullptr)
               ? std::getenv("GAUDI_TEST_HLTHUNK")
               : nullptr;
}

void preload_first(environment &variables, const std::string &file)
{
    std::string &list = variables["LD_PRELOAD"];
    list              = file + (list.empty() ? "" : ":" + list);
}

} // namespace

environment with_needs_of_build(environment variables)
{
#ifdef __SANITIZE_ADDRESS__
    /* The launcher puts the loader in front of the runtime. That is well: it
     * has no function that the runtime wraps. Leaks are looked for in the
     * unit tests: here they are those of stock programs. */
    preload_first(variables, GAUDI_ASAN_RUNTIME);
    variables["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0";
#endif
    if (const char *library = tested_library(); library != nullptr) {
        preload_first(variables, kernel_double);
        const auto found = variables.find(driver);
        if ((found != variables.end()) && (found->second == "emulator")) {
            found->second = library;
        }
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

std::string sanitizer_report([[maybe_unused]] const std::string &output)
{
#ifdef __SANITIZE_ADDRESS__
    for (const char *heading :
         {"ERROR: AddressSanitizer", ": runtime error: "}) {
        if (const size_t at = output.find(heading); at != std::string::npos) {
            return output.substr(at);
        }
    }
#endif
    return {};
}

} // namespace gaudi::test
