/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/wheel.h"

#include "gtest/tools/installations.h"

#include <fstream>
#include <iterator>

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

std::string read(const fs::path &file)
{
    std::ifstream content(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(content), {}};
}

} // namespace

void PrintTo(const wheel_names &names, std::ostream *out)
{
    *out << names.text;
}

made_wheel::made_wheel(const wheel_names &names) : names_(names)
{
    const fs::path ucx = folder_of_ucx();
    fs::create_directories(modules());
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
            const fs::path module =
                modules() / (name.substr(0, name.find('.')) + names_.end);
            copy_writable(entry.path(), module);
            link(module, "$ORIGIN/..:$ORIGIN");
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

std::map<std::string, std::string> made_wheel::content() const
{
    std::map<std::string, std::string> all;
    for (const auto &entry : fs::recursive_directory_iterator(folder())) {
        all[entry.path().string()] = entry.is_regular_file()
                                         ? read(entry.path())
                                         : std::string("folder");
    }
    return all;
}

} // namespace gaudi::test
