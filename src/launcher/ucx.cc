#include "launcher/ucx.h"

#include "launcher/machine.h"

#include <cstdio>
#include <fstream>
#include <iterator>

#include <dlfcn.h>
#include <link.h>

namespace launcher {

namespace {

namespace fs = std::filesystem;

fs::path file_of(void *handle)
{
    link_map *map = nullptr;
    if ((handle == nullptr) || (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)) {
        return {};
    }
    return map->l_name;
}

/* The names in ":ib:rdmacm:cma"; none when the text is no such list. */
std::vector<std::string> parse_names(const std::string &text)
{
    std::vector<std::string> names;
    for (const std::string &name : split(text.substr(1), ":")) {
        if (name.empty() || (name[0] < 'a') ||
            (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") !=
             name.npos)) {
            return {};
        }
        names.push_back(name);
    }
    return names;
}

} // namespace

std::string to_string(const ucx_release &release)
{
    return std::to_string(release.major) + '.' + std::to_string(release.minor);
}

std::optional<ucx_release> parse_release(const std::string &text)
{
    ucx_release release;
    char end = '\0';
    if (std::sscanf(text.c_str(), "%u.%u%c", &release.major, &release.minor,
                    &end) != 2) {
        return std::nullopt;
    }
    return release;
}

found_ucx find_ucx()
{
    using get_version = void (*)(unsigned *, unsigned *, unsigned *);

    found_ucx found;
    void *handle = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
        found.error = dlerror();
        return found;
    }
    std::error_code error;
    const fs::path file = file_of(handle);
    found.libucp        = fs::canonical(file, error).string();
    found.libucs = file_of(dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD));

    auto ask = reinterpret_cast<get_version>(dlsym(handle, "ucp_get_version"));
    if (ask == nullptr) {
        found.error = file.string() + " has no ucp_get_version";
        return found;
    }
    ucx_release release;
    unsigned patch = 0;
    ask(&release.major, &release.minor, &patch);
    found.release = release;
    found.version = to_string(release) + '.' + std::to_string(patch);
    return found;
}

std::vector<std::string> find_module_names(const fs::path &directory)
{
    std::ifstream file(directory / "libuct.so.0", std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), {}};

    /* The longest one of what looks like it. */
    std::vector<std::string> names;
    const std::string start{'\0', ':'};
    for (size_t at = all.find(start); at != all.npos;
         at        = all.find(start, at + 1)) {
        auto list = parse_names(all.c_str() + at + 1);
        if (list.size() > names.size()) {
            names = std::move(list);
        }
    }
    return names;
}

} // namespace launcher
