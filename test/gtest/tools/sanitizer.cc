#include "gtest/tools/sanitizer.h"

#include <regex>

namespace gaudi::test {

#ifdef __SANITIZE_ADDRESS__

environment with_sanitizer(environment variables)
{
    std::string &list = variables["LD_PRELOAD"];
    list              = GAUDI_ASAN_RUNTIME + (list.empty() ? "" : ":" + list);
    /* The launcher puts the loader in front of the runtime. That is well: it
     * has no function that the runtime wraps. Leaks are looked for in the
     * unit tests: here they are those of stock programs. */
    variables["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0";
    return variables;
}

std::string sanitizer_report(const std::string &output)
{
    static const std::regex heading(
        "ERROR: AddressSanitizer|: runtime error: ");
    std::smatch found;
    return std::regex_search(output, found, heading)
               ? output.substr(static_cast<size_t>(found.position()))
               : std::string();
}

#else

environment with_sanitizer(environment variables)
{
    return variables;
}

std::string sanitizer_report(const std::string &)
{
    return {};
}

#endif

} // namespace gaudi::test
