/**
 * A copy of what was built, to be moved and damaged.
 */
#pragma once

#include "common/scratch.h"
#include "gtest/tools/fixture.h"

#include <filesystem>

namespace gaudi::test {

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

} // namespace gaudi::test
