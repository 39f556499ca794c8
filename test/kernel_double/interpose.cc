/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The system calls that a driver library and this project make on device files
 * and on what shows them, in front of the C library's. Whatever has to do with
 * neither passes.
 */
#include "hlthunk_emulator/driver/ioctl.h"
#include "hlthunk_emulator/hlthunk_emu.h"
#include "kernel_double/kernel.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

using namespace gaudi;
using namespace gaudi::kernel_double;

#define DOUBLE_PUBLIC extern "C" __attribute__((visibility("default")))

namespace {

/* The next definition of a function: the C library's, or of somebody between
 * who wants to see the call, too. */
template <typename Function>
Function *next(const char *name, Function *&known)
{
    Function *found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (found == nullptr) {
        found = reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
        __atomic_store_n(&known, found, __ATOMIC_RELAXED);
    }
    return found;
}

#define NEXT(_name)                                                            \
    ([]() {                                                                    \
        static decltype(::_name) *known;                                       \
        return next(#_name, known);                                            \
    }())

/* 0 and above as it is, -errno as system calls say it. */
template <typename Result>
Result as_system_call(Result result)
{
    if (result < 0) {
        errno = static_cast<int>(-result);
        return -1;
    }
    return result;
}

/* A device file of the box, by name. */
device_file named(const char *path)
{
    return ((path != nullptr) && !own_call::is_active() &&
            (std::strncmp(path, "/dev/", 5) == 0))
               ? find_device_file(path)
               : device_file{};
}

mode_t mode_of(int flags, va_list arguments)
{
    return ((flags & (O_CREAT | O_TMPFILE)) != 0) ? va_arg(arguments, mode_t)
                                                  : 0;
}

int open_file(device_file which, int flags)
{
    const own_call own;
    const int fd = emu::open_device_file(which);
    if ((fd >= 0) && ((flags & O_CLOEXEC) == 0)) {
        fcntl(fd, F_SETFD, 0);
    }
    return fd;
}

/* Whether a descriptor is one of a card, also of another process. Thorough: a
 * duplicate, too, which takes locks of cards. */
bool is_device_file(int fd, bool thorough)
{
    if (own_call::is_active()) {
        return false;
    }
    const own_call own;
    return (thorough ? emu::look_up(fd) : emu::device_file_at(fd)).kind !=
           file_of::nothing;
}

template <typename Open>
int open_path(const char *path, int flags, Open &&pass)
{
    const device_file which = named(path);
    if (which.kind != file_of::nothing) {
        return as_system_call(open_file(which, flags));
    }
    return pass(redirect(path));
}

/* What stat says of a device file. */
template <typename Stat>
void show_as_device(Stat *info, device_file which)
{
    info->st_mode = S_IFCHR | 0666;
    info->st_rdev = device_number(which);
    info->st_size = 0;
}

/* A descriptor that another process may have opened, and this one got. */
device_file opened(int fd, mode_t mode, nlink_t links)
{
    char name[32];
    char target[PATH_MAX];
    if (own_call::is_active() || !S_ISREG(mode) || (links != 0)) {
        return {};
    }
    const own_call own;
    const int saved = errno;
    std::snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(name, target, sizeof(target));
    errno              = saved;
    return (size > 0)
               ? find_linked(std::string(target, static_cast<size_t>(size)))
               : device_file{};
}

template <typename Stat>
int stat_fd(int ret, int fd, Stat *info)
{
    if (ret == 0) {
        const device_file which = opened(fd, info->st_mode, info->st_nlink);
        if (which.kind != file_of::nothing) {
            show_as_device(info, which);
        }
    }
    return ret;
}

template <typename Stat, typename Pass>
int stat_path(const char *path, Stat *info, Pass &&pass)
{
    const int ret           = pass(redirect(path));
    const device_file which = (ret == 0) ? named(path) : device_file{};
    if (which.kind != file_of::nothing) {
        show_as_device(info, which);
    }
    return ret;
}

/* What readlink has written, as the double shows it. */
ssize_t show_link(ssize_t size, char *buffer, size_t room)
{
    if ((size <= 0) || own_call::is_active()) {
        return size;
    }
    const std::string target(buffer, static_cast<size_t>(size));
    const std::string shown = shown_link(target);
    const size_t length     = std::min(shown.size(), room);
    std::memcpy(buffer, shown.data(), length);
    return static_cast<ssize_t>(length);
}

/* realpath: the caller's buffer, or one that it frees. */
char *resolve(const char *path, char *resolved)
{
    char *const found = NEXT(realpath)(redirect(path), resolved);
    if ((found != nullptr) && !own_call::is_active()) {
        const std::string shown = without_folder(found); /* no longer */
        std::memcpy(found, shown.c_str(), shown.size() + 1);
    }
    return found;
}

off_t seek(int fd, off_t offset, int whence, off_t ret)
{
    /* dma-bufs are sockets here. */
    if ((ret < 0) && (errno == ESPIPE) && !own_call::is_active()) {
        const own_call own;
        return hlthunk_sys_lseek(fd, offset, whence);
    }
    return ret;
}

} // namespace

/* --- opening and closing ---------------------------------------------------
 */

#define DOUBLE_OPEN(_name)                                                     \
    DOUBLE_PUBLIC int _name(const char *path, int flags, ...)                  \
    {                                                                          \
        va_list arguments;                                                     \
        va_start(arguments, flags);                                            \
        const mode_t mode = mode_of(flags, arguments);                         \
        va_end(arguments);                                                     \
        return open_path(path, flags, [&](const char *other) {                 \
            return NEXT(_name)(other, flags, mode);                            \
        });                                                                    \
    }
DOUBLE_OPEN(open)
DOUBLE_OPEN(open64)

#define DOUBLE_OPENAT(_name)                                                   \
    DOUBLE_PUBLIC int _name(int directory, const char *path, int flags, ...)   \
    {                                                                          \
        va_list arguments;                                                     \
        va_start(arguments, flags);                                            \
        const mode_t mode = mode_of(flags, arguments);                         \
        va_end(arguments);                                                     \
        return open_path(path, flags, [&](const char *other) {                 \
            return NEXT(_name)(directory, other, flags, mode);                 \
        });                                                                    \
    }
DOUBLE_OPENAT(openat)
DOUBLE_OPENAT(openat64)

/* What _FORTIFY_SOURCE makes of these. */
#define DOUBLE_CHECKED_OPEN(_name, _plain)                                     \
    DOUBLE_PUBLIC int _name(const char *path, int flags)                       \
    {                                                                          \
        return _plain(path, flags);                                            \
    }
DOUBLE_CHECKED_OPEN(__open_2, open)
DOUBLE_CHECKED_OPEN(__open64_2, open64)

DOUBLE_PUBLIC FILE *fopen(const char *path, const char *mode)
{
    return NEXT(fopen)(redirect(path), mode);
}

DOUBLE_PUBLIC FILE *fopen64(const char *path, const char *mode)
{
    return NEXT(fopen64)(redirect(path), mode);
}

DOUBLE_PUBLIC DIR *opendir(const char *path)
{
    return NEXT(opendir)(redirect(path));
}

DOUBLE_PUBLIC int close(int fd)
{
    if (is_device_file(fd, false)) {
        const own_call own;
        return emu::close_device_file(fd);
    }
    return NEXT(close)(fd);
}

/* --- calls on nodes --------------------------------------------------------
 */

DOUBLE_PUBLIC int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    const unsigned type = _IOC_TYPE(request);
    if (is_device_file(fd, (type == 'H') || (type == 'd'))) {
        const own_call own;
        return as_system_call(emu::driver::control(fd, request, argument));
    }
    return NEXT(ioctl)(fd, request, argument);
}

DOUBLE_PUBLIC off_t lseek(int fd, off_t offset, int whence) noexcept
{
    return seek(fd, offset, whence, NEXT(lseek)(fd, offset, whence));
}

DOUBLE_PUBLIC off64_t lseek64(int fd, off64_t offset, int whence) noexcept
{
    return seek(fd, offset, whence, NEXT(lseek64)(fd, offset, whence));
}

/* --- what files are --------------------------------------------------------
 */

DOUBLE_PUBLIC int fstat(int fd, struct stat *info) noexcept
{
    return stat_fd(NEXT(fstat)(fd, info), fd, info);
}

DOUBLE_PUBLIC int fstat64(int fd, struct stat64 *info) noexcept
{
    return stat_fd(NEXT(fstat64)(fd, info), fd, info);
}

#define DOUBLE_STAT(_name, _stat)                                              \
    DOUBLE_PUBLIC int _name(const char *path, struct _stat *info) noexcept     \
    {                                                                          \
        return stat_path(path, info, [&](const char *other) {                  \
            return NEXT(_name)(other, info);                                   \
        });                                                                    \
    }
DOUBLE_STAT(stat, stat)
DOUBLE_STAT(stat64, stat64)
DOUBLE_STAT(lstat, stat)
DOUBLE_STAT(lstat64, stat64)

#define DOUBLE_FSTATAT(_name, _stat)                                           \
    DOUBLE_PUBLIC int _name(int directory, const char *path,                   \
                            struct _stat *info, int flags) noexcept            \
    {                                                                          \
        return stat_path(path, info, [&](const char *other) {                  \
            return NEXT(_name)(directory, other, info, flags);                 \
        });                                                                    \
    }
DOUBLE_FSTATAT(fstatat, stat)
DOUBLE_FSTATAT(fstatat64, stat64)

DOUBLE_PUBLIC int statx(int directory, const char *path, int flags,
                        unsigned mask, struct statx *info) noexcept
{
    const int ret = NEXT(statx)(directory, redirect(path), flags, mask, info);
    const device_file which = (ret == 0) ? named(path) : device_file{};
    if (which.kind != file_of::nothing) {
        info->stx_mode       = S_IFCHR | 0666;
        info->stx_rdev_major = major(device_number(which));
        info->stx_rdev_minor = minor(device_number(which));
    }
    return ret;
}

DOUBLE_PUBLIC int access(const char *path, int mode) noexcept
{
    return NEXT(access)(redirect(path), mode);
}

DOUBLE_PUBLIC int faccessat(int directory, const char *path, int mode,
                            int flags) noexcept
{
    return NEXT(faccessat)(directory, redirect(path), mode, flags);
}

DOUBLE_PUBLIC ssize_t readlink(const char *path, char *buffer,
                               size_t room) noexcept
{
    return show_link(NEXT(readlink)(redirect(path), buffer, room), buffer,
                     room);
}

DOUBLE_PUBLIC ssize_t readlinkat(int directory, const char *path, char *buffer,
                                 size_t room) noexcept
{
    return show_link(NEXT(readlinkat)(directory, redirect(path), buffer, room),
                     buffer, room);
}

DOUBLE_PUBLIC ssize_t __readlink_chk(const char *path, char *buffer,
                                     size_t room, size_t)
{
    return readlink(path, buffer, room);
}

DOUBLE_PUBLIC char *realpath(const char *path, char *resolved) noexcept
{
    return resolve(path, resolved);
}

DOUBLE_PUBLIC char *__realpath_chk(const char *path, char *resolved, size_t)
{
    return resolve(path, resolved);
}

/* Its own calls are inside the C library, where nobody sees them. */
DOUBLE_PUBLIC int glob(const char *pattern, int flags,
                       int (*failed)(const char *, int), glob_t *found)
{
    const std::string other = redirect_pattern(pattern);
    const int ret           = NEXT(glob)(other.c_str(), flags, failed, found);
    if ((ret == 0) && (other != pattern)) {
        for (size_t i = 0; i < found->gl_pathc; ++i) {
            char *path              = found->gl_pathv[i];
            const std::string shown = without_folder(path);
            std::memcpy(path, shown.c_str(), shown.size() + 1);
        }
    }
    return ret;
}
