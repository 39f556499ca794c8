#include "launcher/installation.h"

namespace launcher {

namespace {

namespace fs = std::filesystem;

constexpr char loader[] = "libuct_hlthunk.so.0";
constexpr char build[]  = "build the project (scripts/quickstart)";

bool is_there(const fs::path &file)
{
    std::error_code error;
    return fs::exists(file, error);
}

void require(const fs::path &file, problems &found)
{
    if (!is_there(file)) {
        found.push_back({file.string() + " is missing", build});
    }
}

/* The loader splits these variables and expands $ORIGIN and the like. */
void require_listable(const fs::path &entry, const char *variable,
                      const char *separators, problems &found)
{
    if (entry.string().find_first_of(std::string(separators) + "$") !=
        std::string::npos) {
        found.push_back({"'" + entry.string() + "' cannot be in " + variable +
                             ", which has a meaning for one of '" + separators +
                             "$'",
                         "move the project to a path without them"});
    }
}

void require_in_library_path(const fs::path &directory, problems &found)
{
    require_listable(directory, "LD_LIBRARY_PATH", ":;", found);
}

void require_slot(const installation &files, problems &found)
{
    std::error_code error;
    if (!fs::is_symlink(files.slot_libucs, error) ||
        !fs::is_symlink(files.slot_module, error)) {
        found.push_back({files.slot.string() + " is missing or incomplete",
                         "configure and build the project again"});
    } else if (!is_there(files.slot_libucs)) {
        found.push_back(
            {"the UCX that " + files.slot_libucs.string() + " leads to is gone",
             "install it again, or configure and build the project again"});
    }
}

} // namespace

installation find_installation()
{
    const fs::path top =
        fs::read_symlink("/proc/self/exe").parent_path().parent_path();
    installation files;
    files.directory = top / "lib";
    if (!is_there(files.directory / loader)) {
        files.directory = top / GAUDI_INSTALL_LIBDIR;
    }
    files.module      = files.directory / loader;
    files.stub        = files.directory / "libucx_gaudi_preload.so";
    files.emulator    = files.directory / "hlthunk-emu";
    files.slot        = files.directory / "slot";
    files.slot_libucs = files.slot / "libucs.so.0";
    files.slot_module = files.slot / "ucx" / "libuct_rdmacm.so.0";
    return files;
}

problems find_obstacles(const installation &files, loading how)
{
    problems found;
    require(files.module, found);
    if (how == loading::preload) {
        require(files.stub, found);
        require_listable(files.stub, "LD_PRELOAD", " :", found);
    } else {
        require_slot(files, found);
        require_in_library_path(files.slot, found);
    }
    return found;
}

problems find_emulator_obstacles(const installation &files)
{
    problems found;
    require(files.emulator / driver_library, found);
    require_in_library_path(files.emulator, found);
    return found;
}

} // namespace launcher
