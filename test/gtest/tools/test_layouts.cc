/* A UCX of the same release whose structures are other ones. */
#include "common/scratch.h"
#include "gtest/tools/fixture.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <dlfcn.h>
#include <link.h>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/* The file of a library that programs here get. */
std::string file_of(const char *library)
{
    link_map *map = nullptr;
    void *handle  = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    EXPECT_NE(nullptr, handle) << dlerror();
    EXPECT_EQ(0, dlinfo(handle, RTLD_DI_LINKMAP, &map));
    return map->l_name;
}

/* Let a library's symbol table say that an object is a byte longer. */
void grow_object(std::string &library, const char *name)
{
    const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(library.data());
    const auto *sections =
        reinterpret_cast<const ElfW(Shdr) *>(library.data() + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; ++i) {
        if (sections[i].sh_type != SHT_DYNSYM) {
            continue;
        }
        auto *symbols = reinterpret_cast<ElfW(Sym) *>(library.data() +
                                                      sections[i].sh_offset);
        const char *names =
            library.data() + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof(*symbols); ++k) {
            if (std::strcmp(names + symbols[k].st_name, name) == 0) {
                ++symbols[k].st_size;
                return;
            }
        }
    }
    FAIL() << name << " is not in the library";
}

class layouts : public tools {
protected:
    /* What ucx_info lists with such a libuct. */
    process_result list_with_grown(const char *object)
    {
        std::ifstream original(file_of("libuct.so.0"), std::ios::binary);
        std::string library{std::istreambuf_iterator<char>(original), {}};
        grow_object(library, object);
        const std::string copy = files_.file("libuct.so.0", library);
        return emulated(
            {"ucx_info", "-d"},
            {{"LD_LIBRARY_PATH", std::filesystem::path(copy).parent_path()}});
    }

private:
    scratch_directory files_;
};

} // namespace

TEST_F(layouts, that_fit_are_accepted)
{
    const process_result result = list_with_grown("uct_base_iface_flush");
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_THAT(result.output, HasSubstr("gaudi_cpy"));
}

TEST_F(layouts, of_another_build_register_nothing_and_are_told_once)
{
    for (const char *object :
         {"uct_self_tl", "uct_tcp_component", "uct_md_config_table"}) {
        SCOPED_TRACE(object);
        const process_result result = list_with_grown(object);
        EXPECT_TRUE(exited_with(0, result));
        EXPECT_EQ(1u, lines_with(result.output, object).size());
        EXPECT_THAT(result.output, HasSubstr("built for another build of UCX"));
        EXPECT_THAT(result.output, Not(HasSubstr("gaudi_cpy")));
        EXPECT_THAT(result.output, HasSubstr("Transport: tcp"));
    }
}

/* What no symbol tells: libucs fills a context otherwise. */
TEST_F(layouts, that_only_assertions_change_are_noticed)
{
    const process_result result =
        emulated({"ucx_info", "-d"},
                 {{"LD_PRELOAD", GAUDI_TOOLS_DIR "/libother_async.so"}});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ(1u, lines_with(result.output, "ENABLE_ASSERT").size());
    EXPECT_THAT(result.output, Not(HasSubstr("gaudi_cpy")));
    EXPECT_THAT(result.output, HasSubstr("Transport: tcp"));
}

} // namespace gaudi::test
