/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/wheel.h"

#include "util/text.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include <unistd.h>

namespace launcher {

namespace {

namespace fs = std::filesystem;

constexpr char own_folder[] = "ucx-gaudi";
constexpr char displaced[]  = ".displaced";

/* As libucp.so.0, libucp-nixl.so.0, libucp-1a2b3c4d.so.0.0.0. */
bool is_libucp(const std::string &name)
{
    return (name.starts_with("libucp.") || name.starts_with("libucp-")) &&
           (name.find(".so") != name.npos);
}

/* The libraries of UCP below a folder, one of each folder. */
std::vector<fs::path> find_libucps(const fs::path &top)
{
    std::set<fs::path> files;
    std::error_code error;
    for (fs::recursive_directory_iterator
             entry(top, fs::directory_options::skip_permission_denied, error),
         end;
         entry != end; entry.increment(error)) {
        if (is_libucp(entry->path().filename().string())) {
            files.insert(entry->path());
        }
    }
    std::vector<fs::path> result;
    for (const fs::path &file : files) {
        if (result.empty() ||
            (result.back().parent_path() != file.parent_path())) {
            result.push_back(file);
        }
    }
    return result;
}

/* Whether a file is a loader of ucx-gaudi, of any version. */
bool is_loader(const fs::path &file)
{
    std::ifstream content(file, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(content), {}};
    return all.find("ucx_gaudi_version") != all.npos;
}

/* Others may have the old file open, or as another name of their own. */
void replace(const fs::path &from, const fs::path &to)
{
    const fs::path made = to.string() + '.' + std::to_string(getpid());
    try {
        fs::copy_file(from, made, fs::copy_options::overwrite_existing);
        fs::rename(made, to);
    } catch (const fs::filesystem_error &) {
        std::error_code error;
        fs::remove(made, error);
        throw;
    }
}

/* One UCX that gets the transports. */
struct target {
    found_ucx ucx;
    fs::path modules;
    std::string extension; /* of modules: UCX takes that of its libucs */
    std::string name;      /* of the module that the loader is for UCX */

    [[nodiscard]] fs::path file() const
    {
        return modules / ("libuct_" + name + extension);
    }
};

/* Before anything is changed: all of it is to be possible. */
problems find_closed(const fs::path &modules)
{
    const fs::path folder = is_there(modules) ? modules : modules.parent_path();
    if (access(folder.c_str(), W_OK | X_OK) != 0) {
        return {{folder.string() + " cannot be written",
                 "do this as the user who has installed the wheel"}};
    }
    return {};
}

target make_target(const fs::path &libucp)
{
    target made;
    made.ucx     = find_ucx(libucp.c_str());
    made.modules = libucp.parent_path() / module_folder;
    if (made.ucx.release.has_value()) {
        const std::string libucs = made.ucx.libucs.filename().string();
        made.extension =
            libucs.substr(std::min(libucs.find('.'), libucs.size()));
        made.name = choose_name(made.ucx, made.ucx.libuct);
    }
    return made;
}

problems find_obstacles(const installation &files, const target &of,
                        const fs::path &libucp)
{
    if (!of.ucx.release.has_value()) {
        return {{libucp.string() + " cannot be used: " +
                     gaudi::util::to_printable(of.ucx.error),
                 "install that wheel again, or name another folder"}};
    }
    if (const auto obstacle = find_module_obstacle(files, of.ucx)) {
        return {*obstacle};
    }
    if (of.name.empty()) {
        return {{of.ucx.name() + " loads no modules", "use another UCX"}};
    }
    return find_closed(of.modules);
}

void put(const installation &files, const target &to)
{
    const std::string release = to_string(*to.ucx.release);
    for (const fs::path &entry : gaudi::util::list_folder(files.modules)) {
        const std::string name = entry.filename().string();
        if ((name != release) && !name.starts_with(release + "-")) {
            continue; /* the loader chooses among these */
        }
        fs::create_directories(to.modules / own_folder / name);
        for (const fs::path &file : gaudi::util::list_folder(entry)) {
            if (fs::is_regular_file(file)) { /* but no symbols */
                replace(file, to.modules / own_folder / name / file.filename());
            }
        }
    }
    const fs::path file = to.file();
    const fs::path kept = file.string() + displaced;
    if (is_there(file) && !is_loader(file)) {
        fs::remove(kept); /* of a wheel that was replaced since */
        std::error_code error;
        fs::create_hard_link(file, kept, error);
        if (error) {
            fs::copy_file(file, kept);
        }
    }
    replace(files.loader, file);
}

/* Returns whether there was anything. */
bool take_out(const fs::path &modules)
{
    bool any = (fs::remove_all(modules / own_folder) > 0);
    for (const fs::path &entry : gaudi::util::list_folder(modules)) {
        const std::string name = entry.string();
        if (name.ends_with(displaced)) {
            const fs::path file =
                name.substr(0, name.size() - sizeof(displaced) + 1);
            if (is_there(file) && !is_loader(file)) {
                fs::remove(entry); /* the wheel was installed again since */
            } else {
                fs::rename(entry, file);
            }
            any = true;
        } else if (!is_there(name + displaced) && is_loader(entry)) {
            fs::remove(entry);
            any = true;
        }
    }
    std::error_code error;
    if (any && fs::is_empty(modules, error)) {
        fs::remove(modules, error);
    }
    return any;
}

/* The libraries of UCP in what the user has named, or a problem. */
std::vector<fs::path> look_into(const fs::path &named, problems &found)
{
    std::error_code error;
    fs::path folder = fs::canonical(named, error);
    if (error || !fs::is_directory(folder)) {
        found.push_back({named.string() + " is no folder",
                         "name that of a wheel or a virtual environment"});
        return {};
    }
    if (folder.filename() == module_folder) {
        folder = folder.parent_path();
    }
    auto libucps = find_libucps(folder);
    if (libucps.empty()) {
        found.push_back(
            {"there is no UCX in " + folder.string() + ": no libucp*.so*",
             "name the folder of a wheel that has one, or of the "
             "virtual environment"});
    }
    return libucps;
}

template <typename Action>
void attempt(const fs::path &folder, wheel_result &result, Action &&action)
{
    try {
        action();
    } catch (const fs::filesystem_error &error) {
        result.found.push_back(
            {folder.string() + " cannot be changed: " + error.code().message(),
             "see to its permissions, and to the space "
             "that is left"});
    }
}

} // namespace

wheel_result put_into_wheels(const installation &files, const fs::path &folder)
{
    wheel_result result;
    std::vector<target> targets;
    for (const fs::path &libucp : look_into(folder, result.found)) {
        targets.push_back(make_target(libucp));
        for (problem &one : find_obstacles(files, targets.back(), libucp)) {
            result.found.push_back(std::move(one));
        }
    }
    if (!result.found.empty()) {
        return result;
    }
    for (const target &to : targets) {
        attempt(to.modules, result, [&] {
            (void)take_out(to.modules);
            put(files, to);
            result.text += to.modules.string() +
                           ": the Gaudi transports for UCX " + to.ucx.version +
                           ", as " + to.file().filename().string() + '\n';
        });
    }
    return result;
}

wheel_result take_out_of_wheels(const fs::path &folder)
{
    wheel_result result;
    for (const fs::path &libucp : look_into(folder, result.found)) {
        const fs::path modules = libucp.parent_path() / module_folder;
        problems closed        = find_closed(modules);
        if (!closed.empty()) {
            result.found.push_back(std::move(closed.front()));
            continue;
        }
        attempt(modules, result, [&] {
            if (take_out(modules)) {
                result.text += modules.string() + ": as it was\n";
            }
        });
    }
    if (result.found.empty() && result.text.empty()) {
        result.found.push_back(
            {"nothing of ucx-gaudi is in the UCX in " + folder.string(),
             "name the folder that it was put into"});
    }
    return result;
}

} // namespace launcher
