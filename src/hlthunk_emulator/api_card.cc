/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls on an open card that are about other cards, and jobs; and the hooks
 * for tests. */
#include "hlthunk_emulator/api.h"
#include "hlthunk_emulator/exported_buffer.h"
#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_emulator/ports/wire.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

using namespace gaudi::emu;

namespace {

using context = software_card::context;

int export_runs(context &card, uint64_t va, uint64_t size, uint64_t offset)
{
    const mmu_region *region = card.table.find(va);
    if ((region == nullptr) || (region->kind != memory_kind::device)) {
        log("%s: export of %#lx, which no device map call returned", card.name,
            va);
        return -EINVAL;
    }
    if ((size == 0) || (size % host_page != 0) || (offset % host_page != 0) ||
        (offset > region->size) || (size > region->size - offset)) {
        log("%s: export of %lu bytes at offset %lu of %lu: must be pages "
            "inside the mapping",
            card.name, size, offset, region->size);
        return -EINVAL;
    }

    std::vector<hbm_run> runs;
    for (const hbm_run &run : card.memory.find(region->handle)->runs) {
        if (offset >= run.size) {
            offset -= run.size;
            continue;
        }
        const uint64_t bytes = std::min(size, run.size - offset);
        runs.push_back({run.offset + offset, bytes});
        offset = 0;
        size -= bytes;
        if (size == 0) {
            break;
        }
    }
    return create_dmabuf(card.memory.fd(), card.holder.get(), card.index, va,
                         runs);
}

int import_dmabuf(software_card &importer, int fd, uint64_t size,
                  uint64_t &va_p)
{
    /* Programs ask so whether there are imports; no fault is meant for that. */
    if (fcntl(fd, F_GETFD) < 0) {
        return -EBADF;
    }
    int ret = importer.begin(faulty_call::import);
    if (ret != 0) {
        return ret;
    }
    imported_memory memory;
    ret = imported_memory::create(fd, size, memory);
    if (ret != 0) {
        log("accel%u: import of file descriptor %d with %lu bytes: %s",
            importer.index(), fd, size,
            (ret == -EINVAL) ? "no dma-buf, or a smaller one"
                             : std::strerror(-ret));
        return ret;
    }
    return importer.with_open({}, [&](context &card, card_lock &) {
        const fault_effect met = faults::meet(faulty_call::route, card.index);
        va_p                   = card.table.map_import(std::move(memory), size,
                                                       met.kind == fault_kind::none);
        return count_mapping(card, va_p);
    });
}

} // namespace

HLTHUNK_PUBLIC int hlthunk_device_mapped_memory_export_dmabuf_fd(
    int fd, uint64_t device_va, uint64_t size, uint64_t offset, uint32_t flags)
{
    if (flags != (O_RDWR | O_CLOEXEC)) {
        return -EINVAL;
    }
    return on_open(fd, faulty_call::export_to, [=](context &card, card_lock &) {
        return export_runs(card, device_va, size, offset);
    });
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
            uint64_t va = 0;
            const int status =
                import_dmabuf(c, static_cast<int>(arguments->in.fd),
                              arguments->in.length, va);
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

HLTHUNK_PUBLIC int hlthunk_wait_for_multi_cs(int fd, hlthunk_wait_multi_cs_in *,
                                             hlthunk_wait_multi_cs_out *)
{
    /* Gaudi1 only */
    return (find_compute(fd) == nullptr) ? why_no_card(fd) : -EPERM;
}

/* Nothing is posted here, so there is nothing to wait for; the driver answers 0
 * on cards without early write responses, too. */
HLTHUNK_PUBLIC int hlthunk_cs_flush_pci_hbw_writes(int fd)
{
    return (find_compute(fd) == nullptr) ? why_no_card(fd) : 0;
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
                       (each.call != faulty_call::port) &&
                       (each.call != faulty_call::reset);
            });
        faults::instance().add({read.begin(), at_once});
        for (auto each = at_once; each != read.end(); ++each) {
            if (each->call == faulty_call::port) {
                cut_wires(*each);
                continue;
            }
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
