#include "uct/gaudi/base/tls_alias.h"

#include <algorithm>
#include <cstdlib>

namespace gaudi::base {

namespace {

constexpr char variable[] = "UCX_TLS";

/* A backslash in front of a name means "exactly this transport" to UCX, a caret
 * in front of the list "all but these". */
std::string rewrite_token(const std::string &token)
{
    const size_t name_start = token.find_first_not_of("^\\");
    if (name_start == std::string::npos) {
        return token;
    }
    const std::string name = token.substr(name_start);
    if ((name == "gaudi_copy") || (name == "gaudi")) {
        return token.substr(0, name_start) + "gaudi_cpy";
    }
    return token;
}

} // namespace

std::string rewrite_tls(const std::string &tls)
{
    std::string result;
    for (size_t start = 0; start <= tls.size();) {
        const size_t comma = std::min(tls.find(',', start), tls.size());
        result += rewrite_token(tls.substr(start, comma - start));
        result += (comma < tls.size()) ? "," : "";
        start = comma + 1;
    }
    return result;
}

void init_tls_alias()
{
    const char *tls = std::getenv(variable);
    if (tls != nullptr) {
        setenv(variable, rewrite_tls(tls).c_str(), 1);
    }
}

} // namespace gaudi::base
