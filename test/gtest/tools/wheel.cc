/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/wheel.h"

#include "gtest/tools/installations.h"

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

constexpr const char *libraries_of_ucx[] = {"ucm", "ucs", "uct", "ucp"};

/* One change at a time: several at once, patchelf 0.14 mixes up. */
void patch(const fs::path &file, const arguments &change)
{
    arguments command = joined({"patchelf"}, change);
    command.push_back(file.string());
    EXPECT_TRUE(exited_with(0, run(command)));
}

void copy_writable(const fs::path &from, const fs::path &to)
{
    fs::copy_file(fs::canonical(from), to);
    fs::permissions(to, fs::perms::owner_all);
}

} // namespace

void PrintTo(const wheel_names &names, std::ostream *out)
{
    *out << names.text;
}

made_wheel::made_wheel(const wheel_names &names) : names_(names)
{
    const fs::path ucx = folder_of_ucx();
    fs::create_directories(libraries() / "ucx");
    for (const char *name : libraries_of_ucx) {
        copy_writable(ucx / ("lib" + std::string(name) + ".so.0"),
                      library(name));
        patch(library(name),
              {"--set-soname", library(name).filename().string()});
        link(library(name), "$ORIGIN");
    }
    for (const auto &entry : fs::directory_iterator(ucx / "ucx")) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with(".so.0")) {
            const fs::path copy = module(name.substr(3, name.find('.') - 3));
            copy_writable(entry.path(), copy);
            link(copy, "$ORIGIN/..:$ORIGIN");
        }
    }
}

void made_wheel::link(const fs::path &file, const std::string &run_path) const
{
    for (const char *name : libraries_of_ucx) {
        patch(file, {"--replace-needed", "lib" + std::string(name) + ".so.0",
                     library(name).filename().string()});
    }
    patch(file, {"--set-rpath", run_path});
}

std::string made_wheel::program(const fs::path &of) const
{
    const fs::path made = files_.path(of.filename().string());
    if (!fs::exists(made)) {
        copy_writable(of, made);
        link(made,
             libraries().string() + ":" GAUDI_BUILD_DIR "/lib/hlthunk-emu");
    }
    return made.string();
}

} // namespace gaudi::test
