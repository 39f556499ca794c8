/*
 * Driver libraries that show what the shim asks of them for dma-bufs. Each says
 * through stub_calls what was called.
 *
 * STUB_DEVICE_ID: PCI id of its card. STUB_WITHOUT_EXPORT: it cannot export.
 * STUB_IMPORT: which number of the memory ioctl it imports by, "old" or "new",
 * or "none" (-EINVAL, as the mainline driver); not set: the kernel is asked.
 */
#include "hlthunk_shim/hlthunk/abi.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>

#define hlthunk_open stub_other_open
#define hlthunk_get_hw_ip_info stub_other_get_hw_ip_info
#define hlthunk_device_memory_export_dmabuf_fd stub_other_export
#define hlthunk_device_mapped_memory_export_dmabuf_fd stub_other_mapped_export
#define hlthunk_sys_ioctl stub_other_ioctl
#define hlthunk_sys_lseek stub_other_lseek
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define STUB_PUBLIC extern "C" __attribute__((visibility("default")))
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    STUB_PUBLIC _result _name _parameters                                      \
    {                                                                          \
        return {};                                                             \
    }
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
#undef hlthunk_open
#undef hlthunk_get_hw_ip_info
#undef hlthunk_device_memory_export_dmabuf_fd
#undef hlthunk_device_mapped_memory_export_dmabuf_fd
#undef hlthunk_sys_ioctl
#undef hlthunk_sys_lseek

namespace {

std::string calls;

void note(const char *format, auto... values)
{
    char text[128];
    std::snprintf(text, sizeof(text), format, values...);
    calls += text;
}

} // namespace

/* The calls since the last time. */
STUB_PUBLIC const char *stub_calls()
{
    static std::string last;
    last = std::exchange(calls, "");
    return last.c_str();
}

STUB_PUBLIC int hlthunk_open(hlthunk_device_name, const char *)
{
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

STUB_PUBLIC int hlthunk_get_hw_ip_info(int, hlthunk_hw_ip_info *info)
{
    *info           = {};
    info->device_id = STUB_DEVICE_ID;
    return 0;
}

#ifndef STUB_WITHOUT_EXPORT
STUB_PUBLIC int hlthunk_device_memory_export_dmabuf_fd(int, uint64_t address,
                                                       uint64_t size,
                                                       uint32_t flags)
{
    note("physical %#lx %lu %s\n", address, size,
         (flags == (O_RDWR | O_CLOEXEC)) ? "rw,cloexec" : "other flags");
    return 77;
}

STUB_PUBLIC int hlthunk_device_mapped_memory_export_dmabuf_fd(
    int, uint64_t address, uint64_t size, uint64_t offset, uint32_t flags)
{
    note("mapped %#lx %lu at %lu %s\n", address, size, offset,
         (flags == (O_RDWR | O_CLOEXEC)) ? "rw,cloexec" : "other flags");
    return 78;
}
#endif

#ifdef STUB_IMPORT
STUB_PUBLIC int hlthunk_sys_ioctl(int, unsigned long request, void *argument)
{
    using namespace gaudi::shim;
    const unsigned long known = (std::strcmp(STUB_IMPORT, "old") == 0)
                                    ? memory_ioctl_old
                                    : memory_ioctl;
    auto *arguments           = static_cast<hl_mem_args *>(argument);
    note("%s op %u fd %u length %lu\n",
         (request == memory_ioctl_old) ? "old" : "new", arguments->in.op,
         static_cast<unsigned>(arguments->in.fd), arguments->in.length);
    if (request != known) {
        /* A driver may leave anything there. */
        std::memset(argument, 0xff, sizeof(*arguments));
        errno = ENOTTY;
        return -1;
    }
    if (std::strcmp(STUB_IMPORT, "none") == 0) {
        errno = EINVAL;
        return -1;
    }
    *arguments                      = {};
    arguments->out.device_virt_addr = 0xfff0000000001000;
    return 0;
}
#endif
