#include "launcher/installation.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include <unistd.h>

namespace launcher {

namespace {

namespace fs = std::filesystem;

constexpr char suffix[]        = ".so.0";
constexpr char module_folder[] = "ucx";

/* Costs least: what it displaces is not a transport. */
constexpr char preferred[] = "rdmacm";

constexpr char own_name[] = "hlthunk";

/* Where slots are made; empty without a home. Relative paths do not count, as
 * the XDG Base Directory Specification has it. */
fs::path cache_directory()
{
    const fs::path cache = get_variable("XDG_CACHE_HOME");
    const fs::path home  = get_variable("HOME");
    return cache.is_absolute()  ? cache / "ucx-gaudi"
           : home.is_absolute() ? home / ".cache" / "ucx-gaudi"
                                : fs::path();
}

/* A folder for each text that what is in it depends on; empty without a home.
 */
fs::path cached_folder(const char *kind, const std::string &text)
{
    const fs::path cache = cache_directory();
    if (cache.empty()) {
        return {};
    }
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (const unsigned char c : text) {
        hash = (hash ^ c) * 0x100000001b3u;
    }
    char name[32];
    std::snprintf(name, sizeof(name), "%s-%016lx", kind, hash);
    return cache / name;
}

/* Under which name this UCX loads the loader; empty when it loads nothing. */
std::string choose_name(const found_ucx &ucx, const fs::path &directory)
{
    if (*ucx.release >= first_with_plugins) {
        return own_name; /* displaces nothing */
    }
    const auto names = find_module_names(directory);
    if (names.empty()) {
        return "";
    }
    const auto found = std::find(names.begin(), names.end(), preferred);
    return (found != names.end()) ? *found : names.back();
}

/* A link is replaced as a whole: others may be using it. */
void make_link(const fs::path &target, const fs::path &link)
{
    std::error_code error;
    if (fs::read_symlink(link, error) == target) {
        return;
    }
    const fs::path made = link.string() + '.' + std::to_string(getpid());
    fs::remove(made, error);
    fs::create_symlink(target, made);
    fs::rename(made, link);
}

/* UCX would look for its other modules beside the link to its libucs. */
void link_all(const fs::path &from, const std::string &prefix,
              const fs::path &to, const fs::path &except = {})
{
    for (const fs::path &file : gaudi::util::list_folder(from)) {
        const std::string name = file.filename().string();
        if (name.starts_with(prefix) && name.ends_with(suffix) &&
            (name != except)) {
            make_link(file, to / name);
        }
    }
}

void choose_slot(installation &files, const found_ucx &ucx)
{
    std::error_code error;
    const fs::path directory = fs::canonical(ucx.libucs, error).parent_path();
    if (error || !ucx.release.has_value() ||
        !fs::is_symlink(files.slot_libucs, error) ||
        !fs::is_symlink(files.slot_module, error)) {
        return; /* nothing to choose for, or a damaged installation */
    }
    const std::string name = choose_name(ucx, directory);
    if (name.empty()) {
        files.slot_module.clear();
        return;
    }
    if (((name == preferred) || (name == own_name)) &&
        fs::equivalent(ucx.libucs, files.slot_libucs, error)) {
        return;
    }
    const std::string link = "libuct_" + name + ".so.0";
    files.slot_ucx         = directory;
    files.slot        = cached_folder("slot", files.loader.string() + '\n' +
                                                  directory.string() + '\n' + link);
    files.slot_libucs = files.slot / "libucs.so.0";
    files.slot_module = files.slot / "ucx" / link;
}

void choose_preload(installation &files)
{
    /* What the dynamic linker expands it would expand in the module's path,
     * too. */
    if (can_be_preloaded(files.preload) ||
        (files.preload.string().find('$') != std::string::npos)) {
        return;
    }
    const fs::path folder = cached_folder("preload", files.loader.string());
    if (!folder.empty() && can_be_preloaded(folder)) {
        files.preload = folder / files.preload.filename();
    }
}

} // namespace

void choose_links(installation &files, const found_ucx &ucx)
{
    choose_preload(files);
    choose_slot(files, ucx);
}

problems make_links(const installation &files, loading how)
{
    const bool slot       = (how == loading::slot) && !files.slot_ucx.empty();
    const fs::path folder = files.preload.parent_path();
    try {
        if (slot) {
            fs::create_directories(files.slot / module_folder);
            link_all(files.slot_ucx, "libuc", files.slot);
            link_all(files.slot_ucx / module_folder, "libuc",
                     files.slot / module_folder, files.slot_module.filename());
            make_link(files.loader, files.slot_module);
        } else if ((how == loading::preload) && (folder != files.directory)) {
            fs::create_directories(folder);
            make_link(files.loader, files.preload);
        }
    } catch (const fs::filesystem_error &error) {
        return {{(slot ? "a slot for the UCX in " + files.slot_ucx.string()
                       : std::string("a link that LD_PRELOAD can name")) +
                     " cannot be made: " + error.what(),
                 std::string("set XDG_CACHE_HOME to a folder that can be "
                             "written, or ") +
                     (slot ? "do without --slot"
                           : "move ucx-gaudi to a path without spaces")}};
    }
    return {};
}

} // namespace launcher
