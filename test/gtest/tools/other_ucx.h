/**
 * A UCX of any version in a folder of its own, made of stand-ins: see
 * other_ucp.c, other_ucs.c and other_uct.c.
 */
#pragma once

#include "common/scratch.h"

#include <string>

namespace gaudi::test {

/** Make libucs, libucp, libuct and a module in a folder that is made, too. */
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
