/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/vfs.h"

#include <cstdio>

#include <sys/stat.h>

extern "C" {
#include <config.h>
#include <ucs/vfs/base/vfs_obj.h>
}

namespace gaudi::test {

std::optional<uint64_t> vfs_number(const std::string &path)
{
    std::optional<uint64_t> number;
    ucs_string_buffer_t text;
    ucs_string_buffer_init(&text);
    if (ucs_vfs_path_read_file(path.c_str(), &text) == UCS_OK) {
        number = std::stoull(ucs_string_buffer_cstr(&text));
    }
    ucs_string_buffer_cleanup(&text);
    return number;
}

bool look_into(const std::string &path)
{
    ucs_vfs_path_info_t info{};
    return (ucs_vfs_path_get_info(path.c_str(), &info) == UCS_OK) &&
           S_ISDIR(static_cast<mode_t>(info.mode));
}

std::string vfs_name(const void *object)
{
    char text[32];
    std::snprintf(text, sizeof(text), "%p", object);
    return text;
}

} // namespace gaudi::test
