/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library has beside hl-thunk's functions: hooks for tests, and what
 * stands for files of the kernel. */
#include "hlthunk_emulator/driver/ioctl.h"
#include "hlthunk_emulator/exported_buffer.h"
#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_emulator/ports/wire.h"
#include "hlthunk_emulator/public.h"
#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/sysfs_view.h"
#include "util/made_once.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include <unistd.h>

using namespace gaudi::emu;

namespace {

/* A text that is made once; nullptr without memory for it. */
template <typename Make>
const char *text_or_null(Make &&make)
{
    try {
        static gaudi::util::made_once<std::string> text;
        return text.get(make).c_str();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

} // namespace

HLTHUNK_PUBLIC int hlthunk_sys_ioctl(int fd, unsigned long request,
                                     void *argument)
{
    const int ret = driver::control(fd, request, argument);
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

HLTHUNK_PUBLIC const char *hlthunk_sys_sysfs()
{
    try {
        return sysfs_root();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

HLTHUNK_PUBLIC const char *hlthunk_sys_dev()
{
    return text_or_null(
        [] { return "/memfd:hlthunk-emu/" + get_settings().node; });
}

HLTHUNK_PUBLIC const char *hlthunk_sys_box()
{
    return text_or_null([] { return box_name(); });
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
