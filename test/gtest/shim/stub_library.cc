/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver library that lacks some symbols of the shim's table: they get
 * another name. No function of it does anything.
 */
#include "hlthunk_shim/abi/hlthunk.h"

#ifdef STUB_WITHOUT_REQUIRED
#define hlthunk_memory_unmap stub_hides_memory_unmap
#define hlthunk_wait_for_cs stub_hides_wait_for_cs
#endif
#ifdef STUB_WITHOUT_OPTIONAL
#define hlthunk_get_dram_usage stub_hides_get_dram_usage
#define hlthunk_device_mapped_memory_export_dmabuf_fd stub_hides_export
#define hlthunk_sys_box stub_hides_box
#endif

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    extern "C" __attribute__((visibility("default")))                          \
    _result _name _parameters                                                  \
    {                                                                          \
        return {};                                                             \
    }
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
