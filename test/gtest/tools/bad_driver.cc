/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver library whose cards are the emulator's, which is linked with it, and
 * that gets one thing wrong, as BAD_DRIVER says:
 *
 * apart   says that its memory has addresses that no card's has
 * wide    writes more of hlthunk_hw_ip_info than there is
 * twice   says something else of a card that is open
 * moved   maps device memory elsewhere than it is wished for
 * crash   ends the process that maps host memory at an odd address
 * hang    never answers who exports memory
 * short   copies all but the last byte of more than a page
 * long    copies a byte more of more than a page
 * within  as short, of copies within a card alone
 * even    maps host memory at the begin of its page
 * loose   lets memory be unmapped of which there is a dma-buf
 * free    says that nobody has a card
 * deaf    never opens a control node
 * control ends the process that opens a control node
 * fatal   ends the process that loads it
 */
#include "hlthunk_shim/abi/hlthunk.h"
#include "hlthunk_shim/abi/lin_dma.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>

#include <dlfcn.h>
#include <unistd.h>

namespace {

bool is_bad(const char *how)
{
    const char *text = std::getenv("BAD_DRIVER");
    return (text != nullptr) && (std::strcmp(text, how) == 0);
}

template <typename Function>
Function *of_emulator(const char *name)
{
    static void *library =
        dlopen(GAUDI_BUILD_DIR "/lib/hlthunk-emu/libhl-thunk.so", RTLD_LAZY);
    return reinterpret_cast<Function *>(dlsym(library, name));
}

/* Host memory by the address that the card has for it. */
std::map<uint64_t, char *> mapped;

/* The command buffer at an address of the card. */
char *find_buffer(uint64_t va)
{
    auto next = mapped.upper_bound(va);
    return (next == mapped.begin()) ? nullptr
                                    : (--next)->second + (va - next->first);
}

} // namespace

__attribute__((constructor)) static void start()
{
    if (is_bad("fatal")) {
        raise(SIGSEGV);
    }
}

/* Calls on to the emulator. */
#define REAL(_name) of_emulator<decltype(_name)>(#_name)
#define BAD extern "C" __attribute__((visibility("default")))

BAD int hlthunk_open(hlthunk_device_name name, const char *bus_id)
{
    const int fd = REAL(hlthunk_open)(name, bus_id);
    return ((fd == -EBUSY) && is_bad("twice")) ? -EPERM : fd;
}

BAD int hlthunk_open_control(int index, const char *bus_id)
{
    while (is_bad("deaf")) {
        pause();
    }
    if (is_bad("control")) {
        std::abort(); /* which no sanitizer takes for itself */
    }
    return REAL(hlthunk_open_control)(index, bus_id);
}

BAD int hlthunk_get_hw_ip_info(int fd, hlthunk_hw_ip_info *info)
{
    const int ret = REAL(hlthunk_get_hw_ip_info)(fd, info);
    if (is_bad("apart")) {
        info->dram_base_address = 0x0300000000000000;
    }
    if (is_bad("wide")) {
        std::memset(info + 1, 0, 8);
    }
    return ret;
}

BAD uint64_t hlthunk_device_memory_map(int fd, uint64_t handle, uint64_t hint)
{
    return REAL(hlthunk_device_memory_map)(fd, handle,
                                           is_bad("moved") ? 0 : hint);
}

BAD uint64_t hlthunk_host_memory_map(int fd, void *host, uint64_t hint,
                                     uint64_t size)
{
    if (is_bad("crash") && ((reinterpret_cast<uintptr_t>(host) & 1) != 0)) {
        raise(SIGSEGV);
    }
    const uint64_t va = REAL(hlthunk_host_memory_map)(fd, host, hint, size);
    mapped[va]        = static_cast<char *>(host);
    return is_bad("even") ? va & ~uint64_t{4095} : va;
}

BAD int hlthunk_memory_unmap(int fd, uint64_t va)
{
    const int ret = REAL(hlthunk_memory_unmap)(fd, va);
    return is_bad("loose") ? 0 : ret;
}

BAD int hlthunk_get_open_stats(int fd, hlthunk_open_stats_info *info)
{
    const int ret = REAL(hlthunk_get_open_stats)(fd, info);
    if (is_bad("free")) {
        *info = {};
    }
    return ret;
}

BAD int hlthunk_device_mapped_memory_export_dmabuf_fd(int fd, uint64_t va,
                                                      uint64_t size,
                                                      uint64_t offset,
                                                      uint32_t flags)
{
    while (is_bad("hang")) {
        pause();
    }
    return REAL(hlthunk_device_mapped_memory_export_dmabuf_fd)(fd, va, size,
                                                               offset, flags);
}

BAD int hlthunk_command_submission(int fd, hlthunk_cs_in *in,
                                   hlthunk_cs_out *out)
{
    namespace shim = gaudi::shim;
    auto *chunk    = static_cast<hl_cs_chunk *>(in->chunks_execute);
    const int more = is_bad("long")                        ? 1
                     : is_bad("short") || is_bad("within") ? -1
                                                           : 0;
    for (uint32_t i = 0; (more != 0) && (i < in->num_chunks_execute); ++i) {
        char *buffer      = find_buffer(chunk[i].cb_handle);
        const auto opcode = [&] {
            const auto *one = reinterpret_cast<shim::cp_dma *>(buffer);
            return (one->ctl >> shim::packet_opcode_shift) &
                   shim::packet_opcode_mask;
        };
        if (is_bad("within")) {
            if (opcode() != shim::packet_cp_dma) {
                continue;
            }
            buffer = find_buffer(reinterpret_cast<shim::cp_dma *>(buffer)->src);
        }
        auto *packet = reinterpret_cast<shim::lin_dma *>(buffer);
        if ((opcode() == shim::packet_lin_dma) && (packet->tsize > 4096)) {
            packet->tsize += static_cast<uint32_t>(more);
        }
    }
    return REAL(hlthunk_command_submission)(fd, in, out);
}
