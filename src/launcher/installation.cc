/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/installation.h"

#include "loader/running_ucx.h"

#include <algorithm>

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
    if (!fs::is_symlink(files.slot_libucs, error) ||
        !fs::is_symlink(files.slot_module, error)) {
        found.push_back(
            {files.slot.string() + " is missing or incomplete", reinstall});
    } else if (!fs::equivalent(ucx.libucs, files.slot_libucs, error)) {
        const fs::path target = fs::read_symlink(files.slot_libucs, error);
        found.push_back({"the slot is for " + target.string() +
                             ", and programs get " +
                             (ucx.libucs.empty() ? "none: " + ucx.error
                                                 : ucx.libucs.string()),
                         "do without --slot, or take that UCX out of "
                         "LD_LIBRARY_PATH"});
    }
    require_listable(files.slot, "LD_LIBRARY_PATH", library_special, found);
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
                 gaudi::shim::install_emulator});
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

} // namespace launcher
