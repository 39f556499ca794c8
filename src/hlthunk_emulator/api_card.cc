/* The calls on an open card, and the hooks for tests. */
#include "hlthunk_emulator/api.h"
#include "hlthunk_emulator/exported_buffer.h"
#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

using namespace gaudi::emu;

namespace {

/* Calls with a 64-bit result, which the card fills in, say 0 for failure and
 * leave errno. */
template <typename Call, typename... Arguments>
uint64_t value_of(int fd, Call &&call, Arguments... arguments) noexcept
{
    uint64_t value = 0;
    const int ret  = on_compute(fd, call, arguments..., value);
    if (ret != 0) {
        errno = -ret;
        return 0;
    }
    return value;
}

int request_buffer(int fd, uint32_t size, bool mapped, uint64_t *handle)
{
    return (handle == nullptr)
               ? -EINVAL
               : on_compute(fd, &software_card::create_command_buffer, size,
                            mapped, *handle);
}

} // namespace

HLTHUNK_PUBLIC uint64_t hlthunk_device_memory_alloc(int fd, uint64_t size,
                                                    uint64_t page_size,
                                                    bool /* contiguous */,
                                                    bool /* shared */)
{
    return value_of(fd, &software_card::allocate, size, page_size);
}

HLTHUNK_PUBLIC int hlthunk_device_memory_free(int fd, uint64_t handle)
{
    return on_compute(fd, &software_card::free, handle);
}

HLTHUNK_PUBLIC uint64_t hlthunk_device_memory_map(int fd, uint64_t handle,
                                                  uint64_t hint_addr)
{
    return value_of(fd, &software_card::map_device, handle, hint_addr);
}

HLTHUNK_PUBLIC uint64_t hlthunk_host_memory_map_flags(int fd, void *host,
                                                      uint64_t hint_addr,
                                                      uint64_t size,
                                                      uint32_t flags)
{
    constexpr uint32_t force_hint = 0x8; /* HL_MEM_FORCE_HINT; others matter
                                            to other memory */
    return value_of(fd, &software_card::map_host, host, hint_addr,
                    (flags & force_hint) != 0, size);
}

HLTHUNK_PUBLIC uint64_t hlthunk_host_memory_map(int fd, void *host,
                                                uint64_t hint_addr,
                                                uint64_t size)
{
    return value_of(fd, &software_card::map_host, host, hint_addr, false, size);
}

HLTHUNK_PUBLIC int hlthunk_get_dev_memalloc_page_orders(int fd,
                                                        uint64_t *page_orders)
{
    if (find_inherited(fd) != nullptr) {
        return why_no_card(fd);
    }
    if ((find_any(fd) == nullptr) || (page_orders == nullptr)) {
        return -EINVAL;
    }
    /* A bit for each size that may be chosen, if any may. */
    *page_orders =
        get_settings().kind->user_page_size ? get_settings().dram_page : 0;
    return 0;
}

HLTHUNK_PUBLIC int hlthunk_memory_unmap(int fd, uint64_t device_va)
{
    return on_compute(fd, &software_card::unmap, device_va);
}

HLTHUNK_PUBLIC int hlthunk_device_mapped_memory_export_dmabuf_fd(
    int fd, uint64_t device_va, uint64_t size, uint64_t offset, uint32_t flags)
{
    if (flags != (O_RDWR | O_CLOEXEC)) {
        return -EINVAL;
    }
    return on_compute(fd, &software_card::export_dmabuf, device_va, size,
                      offset);
}

HLTHUNK_PUBLIC int hlthunk_device_memory_export_dmabuf_fd(int fd, uint64_t,
                                                          uint64_t, uint32_t)
{
    if (find_compute(fd) == nullptr) {
        return why_no_card(fd);
    }
    log("hlthunk_device_memory_export_dmabuf_fd is for cards without an MMU");
    return -EINVAL;
}

/* Knows the memory ioctl of DRM nodes, and of its operations the import of a
 * dma-buf, as the vendor's driver has it; without settings::import none, as the
 * mainline one. */
HLTHUNK_PUBLIC int hlthunk_sys_ioctl(int fd, unsigned long request,
                                     void *argument)
{
    auto *arguments = static_cast<hl_mem_args *>(argument);
    int ret         = -ENOTTY;
    if (request == gaudi::shim::memory_ioctl) {
        ret = on_compute(fd, [&](software_card &c) {
            if (arguments == nullptr) {
                return -EFAULT;
            }
            if ((arguments->in.op != gaudi::shim::memory_op_import) ||
                !get_settings().import) {
                log("memory operation %u is unknown to this driver",
                    arguments->in.op);
                return -EINVAL;
            }
            uint64_t va      = 0;
            const int status = c.import_dmabuf(
                static_cast<int>(arguments->in.fd), arguments->in.length, va);
            *arguments                      = {};
            arguments->out.device_virt_addr = va;
            return status;
        });
    }
    if (ret != 0) {
        errno = -ret;
        return -1;
    }
    return 0;
}

HLTHUNK_PUBLIC long hlthunk_sys_lseek(int fd, long offset, int whence)
{
    const int64_t size = size_of_dmabuf(fd);
    if (size < 0) {
        return lseek(fd, offset, whence);
    }
    /* As far as a dma-buf can seek. */
    if ((offset != 0) || ((whence != SEEK_SET) && (whence != SEEK_END))) {
        errno = EINVAL;
        return -1;
    }
    return (whence == SEEK_END) ? size : 0;
}

HLTHUNK_PUBLIC int hlthunk_request_command_buffer(int fd, uint32_t size,
                                                  uint64_t *cb_handle)
{
    return request_buffer(fd, size, false, cb_handle);
}

HLTHUNK_PUBLIC int hlthunk_request_mapped_command_buffer(int fd, uint32_t size,
                                                         uint64_t *cb_handle)
{
    return request_buffer(fd, size, true, cb_handle);
}

HLTHUNK_PUBLIC int hlthunk_get_mapped_cb_device_va_by_handle(int fd,
                                                             uint64_t cb_handle,
                                                             uint64_t *va)
{
    if (va == nullptr) {
        return -EINVAL;
    }
    return on_compute(fd, &software_card::command_buffer_va, cb_handle, *va);
}

HLTHUNK_PUBLIC int hlthunk_destroy_command_buffer(int fd, uint64_t cb_handle)
{
    return on_compute(fd, &software_card::destroy_command_buffer, cb_handle);
}

HLTHUNK_PUBLIC int hlthunk_command_submission(int fd, hlthunk_cs_in *in,
                                              hlthunk_cs_out *out)
{
    if ((in == nullptr) || (out == nullptr)) {
        return -EINVAL;
    }
    uint64_t seq = 0;
    const int ret =
        on_compute(fd, [&](software_card &c) { return c.submit(*in, seq); });
    if (ret == 0) {
        out->seq    = seq;
        out->status = 0;
    }
    return ret;
}

HLTHUNK_PUBLIC int hlthunk_command_submission_timeout(int fd, hlthunk_cs_in *in,
                                                      hlthunk_cs_out *out,
                                                      uint32_t /* seconds */)
{
    return hlthunk_command_submission(fd, in, out);
}

HLTHUNK_PUBLIC int hlthunk_wait_for_cs(int fd, uint64_t seq,
                                       uint64_t timeout_us, uint32_t *status)
{
    if (status == nullptr) {
        return -EINVAL;
    }
    const int ret = on_compute(
        fd, [&](software_card &c) { return c.wait(seq, timeout_us, *status); });
    if (ret == -EBUSY) {
        /* The driver leaves its arguments alone, and the library shows what it
         * had put there. */
        *status = static_cast<uint32_t>(seq);
    }
    return ret;
}

HLTHUNK_PUBLIC int hlthunk_cs_flush_pci_hbw_writes(int fd)
{
    return on_compute(fd, &software_card::flush_posted);
}

HLTHUNK_PUBLIC int hlthunk_wait_for_multi_cs(int fd, hlthunk_wait_multi_cs_in *,
                                             hlthunk_wait_multi_cs_out *)
{
    /* Gaudi1 only */
    return (find_compute(fd) == nullptr) ? why_no_card(fd) : -EPERM;
}

HLTHUNK_PUBLIC int hlthunk_emu_get_counters(int fd,
                                            hlthunk_emu_counters *counters)
{
    return on_compute(fd, &software_card::counters, *counters);
}

HLTHUNK_PUBLIC int hlthunk_emu_copy(int fd, uint64_t dst, uint64_t src,
                                    uint64_t size, unsigned engine,
                                    uint64_t *seq)
{
    if (seq == nullptr) {
        return -EINVAL;
    }
    return on_compute(fd, &software_card::copy, dst, src, size, engine, *seq);
}

HLTHUNK_PUBLIC int hlthunk_emu_pause(int fd, bool paused)
{
    return on_compute(fd, &software_card::pause, paused);
}

HLTHUNK_PUBLIC uint64_t hlthunk_emu_faults_met()
{
    return faults::instance().met();
}

HLTHUNK_PUBLIC int hlthunk_emu_fault(const char *wished)
{
    try {
        (void)software_card::at(0); /* what variables wish for comes first */
        std::vector<fault> read;
        if ((wished == nullptr) || (*wished == '\0')) {
            faults::instance().clear();
            return 0;
        }
        const std::string wrong =
            parse_faults(wished, get_settings().devices, read);
        if (!wrong.empty()) {
            log("hlthunk_emu_fault: %s", wrong.c_str());
            return -EINVAL;
        }
        const auto at_once = std::stable_partition(
            read.begin(), read.end(), [](const fault &each) {
                return (each.call != faulty_call::now) &&
                       (each.call != faulty_call::reset);
            });
        faults::instance().add({read.begin(), at_once});
        for (auto each = at_once; each != read.end(); ++each) {
            for (unsigned i = 0; i < get_settings().devices; ++i) {
                if (each->card.value_or(i) == i) {
                    software_card::at(i).meet_now(*each);
                }
            }
        }
        return 0;
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
}
