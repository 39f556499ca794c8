#include "util/environment.h"

#include <cstdlib>
#include <string_view>

#include <unistd.h>

namespace gaudi::util {

bool is_set_by_untrusted_caller(const char *variable)
{
    const std::string_view name = variable;
    for (char **entry = environ; (entry != nullptr) && (*entry != nullptr);
         ++entry) {
        const std::string_view text = *entry;
        if (text.starts_with(name) && (text.substr(name.size(), 1) == "=")) {
            return secure_getenv(variable) == nullptr;
        }
    }
    return false;
}

} // namespace gaudi::util
