/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Installations that a test makes, moves and damages: of this project, and of
 * UCX.
 */
#pragma once

#include "common/scratch.h"
#include "gtest/tools/fixture.h"

#include <filesystem>

namespace gaudi::test {

/** A copy of what was built. */
class copied_installation {
public:
    /** @param name  Of the directory that it is in. */
    explicit copied_installation(const std::string &name = "copy")
        : root_(files_.path(name))
    {
        namespace fs = std::filesystem;
        const auto options =
            fs::copy_options::recursive | fs::copy_options::copy_symlinks;
        fs::create_directories(root_ / "bin");
        fs::create_directories(root_ / "lib");
        fs::copy_file(test::launcher, launcher());
        for (const char *part :
             {"libuct_hlthunk.so.0", "libuct_hlthunk.so.0.0.0",
              "libucx_gaudi_preload.so", "ucx-gaudi", "hlthunk-emu"}) {
            fs::copy(fs::path(library) / part, path(part), options);
        }
    }

    [[nodiscard]] std::string launcher() const
    {
        return (root_ / "bin" / "ucx-gaudi").string();
    }

    /** Of something in lib. */
    [[nodiscard]] std::string path(const std::string &name) const
    {
        return (root_ / "lib" / name).string();
    }

    void remove(const std::string &name) const
    {
        std::filesystem::remove_all(path(name));
    }

private:
    scratch_directory files_;
    std::filesystem::path root_;
};

/** The folder of the UCX that this build's slot is for. */
inline std::filesystem::path folder_of_ucx()
{
    return std::filesystem::canonical(std::string(library) +
                                      "/ucx-gaudi/slot/libucs.so.0")
        .parent_path();
}

/** Make a UCX of any version, of the stand-ins of other_ucx.c and a module, in
 * a folder that is made, too. */
inline void make_ucx(const scratch_directory &files, const std::string &name,
                     const std::string &version)
{
    namespace fs = std::filesystem;

    fs::create_directories(files.path(name + "/ucx"));
    (void)files.file(name + "/ucx/libuct_ib.so.0", "no library");
    for (const char *file : {"libucs.so.0", "libucp.so.0", "libuct.so.0"}) {
        fs::copy_file(fs::path(GAUDI_TOOLS_DIR "/other-ucx") / file,
                      files.path(name + "/" + file));
    }
    (void)files.file(name + "/version", version + "\n");
}

} // namespace gaudi::test
