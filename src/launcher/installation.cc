/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/installation.h"

#include "loader/running_ucx.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <sys/random.h>
#include <unistd.h>

namespace launcher {

namespace {

namespace fs = std::filesystem;

constexpr char library_name[] = "libuct_hlthunk.so.0";

constexpr char reinstall[] =
    "install ucx-gaudi again, or build it again (scripts/quickstart)";

/* The loader, for ucx_perftest. */
constexpr char perftest_name[] = "libucx_perftest_gaudi.so.0";

/* Separators, and what the dynamic linker expands: $ORIGIN and the like, which
 * it would do in the module's path, too. */
constexpr char preload_special[] = " :$";
constexpr char library_special[] = ":;$";
constexpr char plugin_special[]  = ":$";

bool has_one_of(const fs::path &file, const char *special)
{
    return file.string().find_first_of(special) != std::string::npos;
}

void require(const fs::path &file, problems &found)
{
    if (!is_there(file)) {
        found.push_back({file.string() + " is missing", reinstall});
    }
}

/* Another name of the loader. Where that is missing, this is no second problem.
 */
void require_link(const installation &files, const fs::path &link,
                  problems &found)
{
    if (is_there(files.loader)) {
        require(link, found);
    }
}

/* special  What has a meaning in the variable. */
void require_listable(const fs::path &entry, const char *variable,
                      const char *special, problems &found)
{
    if (has_one_of(entry, special)) {
        found.push_back({"'" + entry.string() + "' cannot be in " + variable +
                             ", which has a meaning for one of '" + special +
                             "'",
                         "move ucx-gaudi to a path without them"});
    }
}

void require_slot(const installation &files, const found_ucx &ucx,
                  problems &found)
{
    std::error_code error;
    if (files.slot_module.empty()) {
        found.push_back({"the UCX at " + ucx.libucp +
                             " loads no modules, so there is no slot in it",
                         "do without --slot"});
    } else if (!files.slot_ucx.empty()) {
        if (files.slot.empty()) {
            found.push_back(
                {"there is no place for a slot of the UCX at " + ucx.libucp,
                 "set XDG_CACHE_HOME or HOME, or do without --slot"});
        }
    } else if (!fs::is_symlink(files.slot_libucs, error) ||
               !fs::is_symlink(files.slot_module, error)) {
        found.push_back(
            {files.slot.string() + " is missing or incomplete",
             "install ucx-gaudi again, or configure and build it again"});
    } else if (!is_there(files.slot_libucs)) {
        found.push_back(
            {"the UCX that " + files.slot_libucs.string() + " leads to is gone",
             "install that UCX again, or do without --slot"});
    }
    require_listable(files.slot, "LD_LIBRARY_PATH", library_special, found);
}

/* Libraries of another UCX would come on top of the slot's libucs. */
void find_other_ucx(const installation &files, problems &found)
{
    const fs::path name = files.slot_libucs.filename();
    for (const std::string &entry :
         split(get_variable("LD_LIBRARY_PATH"), ":;")) {
        std::error_code error;
        const fs::path other = entry / name;
        if (fs::exists(other, error) &&
            !fs::equivalent(other, files.slot_libucs, error)) {
            found.push_back(
                {"LD_LIBRARY_PATH names another UCX, in '" + entry +
                     "', than the one that the slot is made for",
                 "take it out of LD_LIBRARY_PATH, or do without --slot"});
        }
    }
}

/* --- a slot in the user's cache --------------------------------------------*/

/* Costs least: what it displaces is not a transport. */
constexpr char preferred[] = "rdmacm";

constexpr char own_name[] = "hlthunk";

/* Where UCX looks for modules, beside its libraries. */
constexpr char module_folder[] = "ucx";

/* A folder of the user's cache for each text that what is in it depends on;
 * empty without a home. Relative paths do not count, as the XDG Base Directory
 * Specification has it. */
fs::path cached_slot(const std::string &text)
{
    const fs::path cache = get_variable("XDG_CACHE_HOME");
    const fs::path home  = get_variable("HOME");
    if (!cache.is_absolute() && !home.is_absolute()) {
        return {};
    }
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (const unsigned char c : text) {
        hash = (hash ^ c) * 0x100000001b3u;
    }
    char name[32];
    std::snprintf(name, sizeof(name), "slot-%016lx", hash);
    return (cache.is_absolute() ? cache : home / ".cache") / "ucx-gaudi" / name;
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

/* The names of modules that a UCX of before first_with_plugins loads: a list
 * that is compiled into its libuct, as in ":ib:rdmacm:cma". */
std::vector<std::string> find_module_names(const fs::path &libuct)
{
    std::ifstream file(libuct, std::ios::binary);
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

/* A link is replaced as a whole: others may be using it. */
void make_link(const fs::path &target, const fs::path &link)
{
    std::error_code error;
    if (fs::read_symlink(link, error) == target) {
        return;
    }
    /* Not by the pid: containers that share the folder may have the same. */
    unsigned number = 0;
    (void)getrandom(&number, sizeof(number), 0);
    const fs::path made = link.string() + '.' + std::to_string(number);
    fs::create_symlink(target, made);
    fs::rename(made, link);
}

/* UCX would look for its other modules beside the link to its libucs. */
void link_all(const fs::path &from, const std::string &prefix,
              const fs::path &to, const fs::path &except = {})
{
    for (const fs::path &file : gaudi::util::list_folder(from)) {
        const std::string name = file.filename().string();
        if (name.starts_with(prefix) && name.ends_with(".so.0") &&
            (name != except)) {
            make_link(file, to / name);
        }
    }
}

/* Under which name a UCX would load the loader as a module; "" when it loads
 * none.
 *
 * libuct  The file of it that has the names. */
std::string choose_name(const found_ucx &ucx, const fs::path &libuct)
{
    if (*ucx.release >= first_with_plugins) {
        return own_name; /* displaces nothing */
    }
    const auto names = find_module_names(libuct);
    if (names.empty()) {
        return "";
    }
    const auto found = std::find(names.begin(), names.end(), preferred);
    return (found != names.end()) ? *found : names.back();
}

} // namespace

bool is_there(const fs::path &file)
{
    std::error_code error;
    return fs::exists(file, error);
}

installation find_installation()
{
    const fs::path top =
        fs::read_symlink("/proc/self/exe").parent_path().parent_path();
    installation files;
    files.directory = top / "lib";
    if (!is_there(files.directory / library_name)) {
        files.directory = top / GAUDI_INSTALL_LIBDIR;
    }
    files.loader      = files.directory / library_name;
    files.preload     = files.directory / "libucx_gaudi_preload.so";
    files.modules     = files.directory / "ucx-gaudi";
    files.plugin      = files.modules / "plugin";
    files.openmpi     = files.modules / "openmpi";
    files.emulator    = files.directory / "hlthunk-emu";
    files.slot        = files.modules / "slot";
    files.slot_libucs = files.slot / "libucs.so.0";
    files.slot_module = files.slot / "ucx" / "libuct_rdmacm.so.0";
    return files;
}

std::vector<ucx_release> installed_releases(const installation &files)
{
    std::vector<ucx_release> releases;
    for (const fs::path &entry : gaudi::util::list_folder(files.modules)) {
        const auto release = parse_release(entry.filename().string());
        if (release.has_value() && is_there(entry / library_name)) {
            releases.push_back(*release);
        }
    }
    std::sort(releases.begin(), releases.end());
    return releases;
}

std::string to_text(const std::vector<ucx_release> &releases)
{
    std::string text;
    for (const ucx_release &one : releases) {
        text += (text.empty() ? "" : ", ") + to_string(one);
    }
    return text;
}

fs::path module_for(const installation &files, const found_ucx &ucx,
                    std::string &why)
{
    char name[NAME_MAX + 1];
    char other[512];
    if (!gaudi_choose_module(files.modules.c_str(), ucx.release->major,
                             ucx.release->minor, ucx.handle, name, other,
                             sizeof(other))) {
        why = other;
        return {};
    }
    return files.modules / name / library_name;
}

bool can_be_preloaded(const installation &files)
{
    return !has_one_of(files.preload, preload_special);
}

loading choose_loading(const installation &files, bool slot,
                       const found_ucx &ucx)
{
    if (slot) {
        return loading::slot;
    }
    return (!can_be_preloaded(files) && ucx.release.has_value() &&
            (*ucx.release >= first_with_plugins) &&
            !has_one_of(files.plugin, plugin_special))
               ? loading::plugin
               : loading::preload;
}

problems find_obstacles(const installation &files, loading how,
                        const found_ucx &ucx)
{
    problems found;
    require(files.loader, found);
    switch (how) {
    case loading::preload:
        require_link(files, files.preload, found);
        require_listable(files.preload, "LD_PRELOAD", preload_special, found);
        break;
    case loading::slot:
        require_slot(files, ucx, found);
        break;
    case loading::plugin:
        require_link(files, files.plugin / library_name, found);
        require_link(files, files.plugin / perftest_name, found);
        break;
    }
    return found;
}

problems find_obstacles(const installation &files, const request &wanted,
                        loading how, const found_ucx &ucx)
{
    problems found = find_obstacles(files, how, ucx);
    if ((how == loading::slot) && files.slot_ucx.empty()) {
        find_other_ucx(files, found);
    }
    if (installed_releases(files).empty()) {
        found.push_back(
            {files.modules.string() + " has no module, all are missing",
             reinstall});
    }
    if (wanted.emulate) {
        const fs::path library = files.emulator / "libhl-thunk.so";
        if (!is_there(library)) {
            found.push_back(
                {library.string() + " is missing, the software Gaudi",
                 install_emulator});
        }
        require_listable(files.emulator, "LD_LIBRARY_PATH", library_special,
                         found);
    }
    return found;
}

std::optional<problem> find_module_obstacle(const installation &files,
                                            const found_ucx &ucx)
{
    if (!ucx.release.has_value()) {
        return problem{"no UCX can be loaded: " + to_printable(ucx.error),
                       "install UCX (apt-get install libucx0), or see to "
                       "LD_LIBRARY_PATH"};
    }
    const std::string which = ucx.name();
    const auto installed    = installed_releases(files);
    if (*ucx.release < oldest_release) {
        return problem{which + " is too old for the Gaudi transports",
                       "use UCX " + to_string(oldest_release) + " or newer"};
    }
    if (std::find(installed.begin(), installed.end(), *ucx.release) ==
        installed.end()) {
        return problem{
            "no module fits " + which + "; installed: " +
                (installed.empty() ? "none" : to_text(installed)),
            "build ucx-gaudi with the source of UCX " +
                to_string(*ucx.release) +
                " (-DUCX_SOURCE_DIRS), or use a UCX that has a module"};
    }
    std::string why;
    const fs::path module = module_for(files, ucx, why);
    if (module.empty()) {
        return problem{"no module fits " + which + ": " + why,
                       "build ucx-gaudi again with the source and config.h of "
                       "that UCX (-DUCX_SOURCE_DIRS)"};
    }
    if (access(module.c_str(), R_OK) != 0) {
        return problem{module.string() + " cannot be read",
                       "see to its permissions"};
    }
    return {};
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
    const std::string name = choose_name(ucx, directory / "libuct.so.0");
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
    files.slot = cached_slot(files.loader.string() + '\n' + directory.string() +
                             '\n' + link);
    files.slot_libucs = files.slot / "libucs.so.0";
    files.slot_module = files.slot / module_folder / link;
}

problems make_slot(const installation &files)
{
    if (files.slot_ucx.empty()) {
        return {};
    }
    try {
        fs::create_directories(files.slot / module_folder);
        link_all(files.slot_ucx, "libuc", files.slot);
        link_all(files.slot_ucx / module_folder, "libuc",
                 files.slot / module_folder, files.slot_module.filename());
        make_link(files.loader, files.slot_module);
    } catch (const fs::filesystem_error &error) {
        return {{"a slot for the UCX in " + files.slot_ucx.string() +
                     " cannot be made: " + error.what(),
                 "set XDG_CACHE_HOME to a folder that can be written, or do "
                 "without --slot"}};
    }
    return {};
}

} // namespace launcher
