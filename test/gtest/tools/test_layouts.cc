/* SPDX-License-Identifier: BSD-3-Clause */
/* A UCX of the same release whose structures are other ones. */
#include "common/scratch.h"
#include "gtest/tools/installations.h"
#include "gtest/tools/release.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <link.h>

namespace gaudi::test {

namespace {

/* The file of a library that programs here get. */
std::string file_of(const char *library)
{
    link_map *map = nullptr;
    void *handle  = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    EXPECT_NE(nullptr, handle) << dlerror();
    EXPECT_EQ(0, dlinfo(handle, RTLD_DI_LINKMAP, &map));
    return map->l_name;
}

using sections = std::vector<ElfW(Shdr)>;

/* Whether a structure of the library is in this section. */
bool has(const ElfW(Shdr) & section, const ElfW(Sym) & symbol)
{
    return (section.sh_type == SHT_PROGBITS) &&
           (symbol.st_value >= section.sh_addr) &&
           (symbol.st_value < section.sh_addr + section.sh_size);
}

/* Let a class of UCX say that its objects are a byte longer. */
void grow_class(std::string &library, const sections &all,
                const ElfW(Sym) & symbol)
{
    /* After its name. */
    constexpr size_t offset = sizeof(const char *);

    for (const ElfW(Shdr) & section : all) {
        if (has(section, symbol)) {
            ++library[section.sh_offset + symbol.st_value - section.sh_addr +
                      offset];
            return;
        }
    }
    FAIL() << "a class is in no section";
}

/* Let a library tell that an object is a byte longer: its symbol table does, or
 * the object itself if it is a class. */
void grow_object(std::string &library, const std::string &name)
{
    const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(library.data());
    const auto *first =
        reinterpret_cast<const ElfW(Shdr) *>(library.data() + header->e_shoff);
    const sections all(first, first + header->e_shnum);
    for (const ElfW(Shdr) & section : all) {
        if (section.sh_type != SHT_DYNSYM) {
            continue;
        }
        auto *symbols =
            reinterpret_cast<ElfW(Sym) *>(library.data() + section.sh_offset);
        const char *names = library.data() + all[section.sh_link].sh_offset;
        for (size_t k = 0; k < section.sh_size / sizeof(*symbols); ++k) {
            if (names + symbols[k].st_name != name) {
                continue;
            }
            if (name.ends_with("_class")) {
                grow_class(library, all, symbols[k]);
            } else {
                ++symbols[k].st_size;
            }
            return;
        }
    }
    FAIL() << name << " is not in the library";
}

class layouts : public tools {
protected:
    /* What ucx_info lists with such a libuct or libucs. */
    process_result list_with_grown(const std::string &object)
    {
        const std::string name =
            object.starts_with("ucs_") ? "libucs.so.0" : "libuct.so.0";
        std::ifstream original(file_of(name.c_str()), std::ios::binary);
        std::string library{std::istreambuf_iterator<char>(original), {}};
        grow_object(library, object);
        const scratch_directory files;
        const std::string copy = files.file(name, library);
        return emulated(
            {"ucx_info", "-d"},
            {{"LD_LIBRARY_PATH", std::filesystem::path(copy).parent_path()}});
    }
};

} // namespace

TEST_F(layouts, that_fit_are_accepted)
{
    const process_result result = list_with_grown("uct_base_iface_flush");
    EXPECT_TRUE(is_quiet_success(result, {"gaudi_cpy"}));
}

TEST_F(layouts, of_another_build_are_refused_in_one_line)
{
    for (const char *object :
         {"uct_self_tl", "uct_tcp_component", "uct_md_config_table",
          "uct_base_iface_t_class", "uct_base_ep_t_class", "ucs_rcache_t_class",
          "ucs_global_opts"}) {
        SCOPED_TRACE(object);
        const process_result result = list_with_grown(object);
        EXPECT_TRUE(exited_with(
            0, result,
            {"no module fits UCX " GAUDI_UCX_VERSION, "Transport: tcp"},
            {"gaudi_cpy"}));
        /* Not what the dynamic linker says of programs that copy an object. */
        EXPECT_TRUE(has_lines(1, std::string(object) + ": ", result));
        EXPECT_TRUE(has_lines(1, "ucx-gaudi: ", result));
    }
}

/* As a commit before UCX 1.21.0 that has its number, and other tables. */
TEST_F(layouts, of_other_tables_are_refused_in_one_line)
{
    const scratch_directory files;
    const std::string copy = files.path("libuct.so.0");
    std::filesystem::copy_file(file_of("libuct.so.0"), copy);
    ASSERT_TRUE(
        exited_with(0, run({"patchelf", "--add-needed",
                            GAUDI_TOOLS_DIR "/libother_slots.so", copy})));
    const process_result result =
        emulated({"ucx_info", "-d"}, {{"LD_LIBRARY_PATH", files.path("")}});
    EXPECT_TRUE(exited_with(0, result,
                            {"no module fits UCX " GAUDI_UCX_VERSION,
                             "_pack is new", "Transport: tcp"},
                            {"gaudi_cpy"}));
    EXPECT_TRUE(has_lines(1, "ucx-gaudi: ", result));
}

/* A program that names UCX's list of memory types has it itself, with room for
 * as many as there were when it was linked; other symbols may be at its start.
 */
TEST_F(layouts, with_room_for_fewer_memory_types_are_told_and_served)
{
    for (const char *program :
         {"/late_ucx_short_list", "/late_ucx_exported_list"}) {
        SCOPED_TRACE(program);
        const process_result result =
            emulated({std::string(GAUDI_TOOLS_DIR) + program, "global"},
                     {{"UCX_TLS", "gaudi_copy,sm"}});
        EXPECT_TRUE(exited_with(0, result, {"gaudi_cpy/gaudi0"}));
        EXPECT_TRUE(has_lines(1, "different size", result));
        /* UCX 1.13 has no more than these; from 1.21 on none needs another
         * name. */
        const bool warns = !ucx_is_before(1, 14) && ucx_is_before(1, 21);
        EXPECT_TRUE(has_lines(warns ? 1 : 0, "has room for 5 of ", result));
    }
}

/* What no symbol tells: libucs fills a context otherwise. */
TEST_F(layouts, that_only_assertions_change_are_refused)
{
    const copied_installation copy;
    const std::string layout =
        copy.path("ucx-gaudi/" GAUDI_UCX_RELEASE "/layout");
    std::ofstream(layout, std::ios::app) << "async 64 3\n";
    const process_result result = run(
        {copy.launcher(), "run", "--emulate", "--", "ucx_info", "-d"}, with());
    EXPECT_TRUE(exited_with(0, result, {"Transport: tcp"}, {"gaudi_cpy"}));
    EXPECT_TRUE(has_lines(1, "ENABLE_ASSERT", result));
}

} // namespace gaudi::test
