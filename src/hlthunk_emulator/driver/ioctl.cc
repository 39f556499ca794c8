/* SPDX-License-Identifier: BSD-3-Clause */
/* Which call an ioctl is: hl_ioctl and drm_ioctl. */
#include "hlthunk_emulator/driver/ioctl.h"

#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <linux/ioctl.h>

namespace gaudi::emu::driver {

namespace {

/* No answer is better than a made-up one. */
[[noreturn]] void stop(unsigned number)
{
    std::fprintf(stderr, "hlthunk-emu: ioctl %u is not there\n", number);
    std::abort();
}

/* With the kernel's copy of the arguments. */
template <typename Arguments>
int ask_with_copy(int fd, char *copy)
{
    Arguments arguments{};
    std::memcpy(&arguments, copy, sizeof(arguments));
    const int ret = ask(fd, arguments);
    std::memcpy(copy, &arguments, sizeof(arguments));
    return ret;
}

int dispatch(call which, int fd, char *copy)
{
    switch (which) {
    case call::info:
        return ask_with_copy<info_args>(fd, copy);
    case call::command_buffer:
        return ask_with_copy<command_buffer_args>(fd, copy);
    case call::submit:
        return ask_with_copy<submit_args>(fd, copy);
    case call::wait:
        return ask_with_copy<wait_args>(fd, copy);
    case call::memory:
        return ask_with_copy<memory_args>(fd, copy);
    default:
        stop(static_cast<unsigned>(which));
    }
}

} // namespace

int control(int fd, unsigned long request, void *argument)
{
    const bool is_control = (look_up(fd).kind == file_of::control);
    const unsigned number = _IOC_NR(request);
    const unsigned first =
        emulated.is_drm ? first_drm_number : first_old_number;
    if ((number < first) || (number >= first + call_count)) {
        if (!emulated.is_drm && (request == shim::memory_ioctl)) {
            return -ENOTTY; /* drivers are asked by their new number first */
        }
        /* DRM has calls of its own below the drivers', which say so, too, of
         * structures that are not theirs. */
        const bool is_of_drm =
            emulated.is_drm && (number < first) && !is_control;
        return broken("ioctl-number", is_of_drm ? EINVAL : ENOTTY,
                      "ioctl %#lx is unknown", request);
    }
    const auto which = static_cast<call>(number - first);
    if (is_control && (which != call::info)) {
        return why_not(fd);
    }
    if (argument == nullptr) {
        return broken("ioctl-pointer", EFAULT, "ioctl %#lx", request);
    }
    alignas(8) char copy[max_argument_bytes] = {};
    const size_t size = std::min<size_t>(_IOC_SIZE(request), sizeof(copy));
    if (size != argument_bytes[static_cast<unsigned>(which)]) {
        (void)broken("ioctl-size", 0, "%#lx has %zu bytes", request, size);
    }
    std::memcpy(copy, argument, size);
    const int ret = dispatch(which, fd, copy);
    std::memcpy(argument, copy, size); /* when the call fails, too */
    return ret;
}

int why_not(int fd)
{
    return (device_file_at(fd).kind == file_of::control)
               ? broken("control-node", ENOTTY,
                        "file descriptor %d is a control node, which informs "
                        "and does nothing else",
                        fd)
               : why_no_card(fd);
}

int broken(const char *rule, int error, const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    log("%s", what);
    if (watcher != nullptr) {
        watcher(rule, what);
    }
    return -error;
}

} // namespace gaudi::emu::driver
