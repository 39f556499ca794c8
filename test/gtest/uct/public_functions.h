/**
 * The functions of ucx_gaudi.h, of the loader as load_module() has opened it.
 */
#pragma once

#include "program/ucx_gaudi.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

namespace gaudi::test {

template <typename Function>
Function *public_function(const char *name)
{
    static void *module = dlopen(GAUDI_BUILD_DIR "/lib/libuct_hlthunk.so.0",
                                 RTLD_NOW | RTLD_NOLOAD);
    void *found         = dlsym(module, name);
    EXPECT_NE(nullptr, found) << name;
    return reinterpret_cast<Function *>(found);
}

} // namespace gaudi::test

#define GAUDI_CALL(_name) gaudi::test::public_function<decltype(_name)>(#_name)
