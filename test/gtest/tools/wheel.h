/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A folder as a Python wheel's: the installed UCX with other names, and
 * programs that are linked with it.
 */
#pragma once

#include "common/scratch.h"
#include "gtest/tools/two_peers.h"

#include <filesystem>
#include <ostream>
#include <string>

namespace gaudi::test {

/** How packagers name UCX's libraries: libNAME, this, and what UCX takes for
 * the ends of modules' names. */
struct wheel_names {
    const char *text; /* of a test's name */
    const char *middle;
    const char *end;
};

/** By auditwheel, and by UCX's configure --with-soname-suffix=nixl. */
inline constexpr wheel_names hashed   = {"hashed", "-0a1b2c3d", ".so.0.0.0"};
inline constexpr wheel_names suffixed = {"suffixed", "-nixl", ".so.0"};

void PrintTo(const wheel_names &names, std::ostream *out);

class made_wheel {
public:
    explicit made_wheel(const wheel_names &names);

    [[nodiscard]] std::filesystem::path libraries() const
    {
        return files_.path("site-packages/nixl_cu12.libs");
    }
    /** A module, as "uct_rdmacm". */
    [[nodiscard]] std::filesystem::path module(const std::string &name) const
    {
        return libraries() / "ucx" / ("lib" + name + names_.end);
    }
    /** A library, as "ucp". */
    [[nodiscard]] std::filesystem::path library(const std::string &name) const
    {
        return libraries() / ("lib" + name + names_.middle + names_.end);
    }

    /** A copy of a program that has the wheel's UCX. */
    [[nodiscard]] std::string program(const std::filesystem::path &of) const;

private:
    void link(const std::filesystem::path &file,
              const std::string &run_path) const;

    scratch_directory files_;
    const wheel_names names_;
};

} // namespace gaudi::test
