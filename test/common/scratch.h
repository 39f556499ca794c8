/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A directory that goes away with its test.
 */
#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <stdlib.h>

namespace gaudi::test {

class scratch_directory {
public:
    scratch_directory()
    {
        std::string name =
            (std::filesystem::temp_directory_path() / "ucx-gaudi-XXXXXX")
                .string();
        if (mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("mkdtemp failed");
        }
        path_ = name;
    }
    ~scratch_directory()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    scratch_directory(const scratch_directory &)            = delete;
    scratch_directory &operator=(const scratch_directory &) = delete;

    /** Make a file. @return its path. */
    [[nodiscard]] std::string file(const std::string &name,
                                   const std::string &text) const
    {
        const std::string full = path_ + "/" + name;
        std::ofstream(full, std::ios::binary) << text;
        return full;
    }

    [[nodiscard]] std::string path(const std::string &name) const
    {
        return path_ + "/" + name;
    }

private:
    std::string path_;
};

} // namespace gaudi::test
