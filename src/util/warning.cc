#include "util/warning.h"

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <string_view>

namespace gaudi::util {

namespace {

void print(const char *text)
{
    std::fprintf(stderr, "gaudi: %s\n", text);
}

std::atomic<warning_handler> installed{&print};

/* Hashes of what was told once; zero: none. No lock, for children of forks, and
 * no memory, for destructors. */
std::array<std::atomic<size_t>, 64> told;

/* A line for which there is no room is news. */
bool is_news(std::string_view text)
{
    const size_t hash = std::hash<std::string_view>()(text);
    for (std::atomic<size_t> &place : told) {
        size_t known = 0;
        if (place.compare_exchange_strong(known, hash)) {
            return true;
        }
        if (known == hash) {
            return false;
        }
    }
    return true;
}

void tell(bool once, const char *format, va_list arguments)
{
    char text[256];
    std::vsnprintf(text, sizeof(text), format, arguments);
    if (!once || is_news(text)) {
        installed.load()(text);
    }
}

} // namespace

void set_warning_handler(warning_handler handler)
{
    const warning_handler wanted = (handler != nullptr) ? handler : &print;
    if (installed.exchange(wanted) != wanted) {
        for (std::atomic<size_t> &place : told) {
            place = 0;
        }
    }
}

void warn(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    tell(false, format, arguments);
    va_end(arguments);
}

void warn_once(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    tell(true, format, arguments);
    va_end(arguments);
}

} // namespace gaudi::util
