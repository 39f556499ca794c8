/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/fork_handlers.h"

#include <array>
#include <memory>

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::util {

namespace {

constexpr int max_fds = 65536;

/* By number, so that nobody has to look for one, nor take a lock. */
struct entry {
    std::atomic<uint64_t> number{0}; /* 0: none */
    std::atomic<dev_t> device{0};
    std::atomic<ino_t> inode{0};
    std::atomic<int (*)(int)> close{nullptr}; /* nullptr: close(2) */
};

constinit std::array<entry, max_fds> entries;
std::atomic<int> entries_end{0}; /* above all that were ever in use */
std::atomic<uint64_t> last_number{0};

/* Those that were ever locked: a few per library. Filled from the front. */
constinit std::array<std::atomic<child_mutex *>, 64> mutexes{};
std::atomic<bool> renewing{false};

/* A number may stand for another file: the child got its descriptors before it
 * got the memory that says what they are. */
template <bool by_a_library>
void close_descriptors()
{
    const int end = entries_end.load();
    for (int fd = 0; fd < end; ++fd) {
        entry &known     = entries[static_cast<size_t>(fd)];
        auto *close_here = known.close.load();
        if ((known.number.load() == 0) ||
            ((close_here != nullptr) != by_a_library)) {
            continue;
        }
        known.number.store(0);
        struct stat info;
        if ((fstat(fd, &info) == 0) && (info.st_dev == known.device.load()) &&
            (info.st_ino == known.inode.load())) {
            (void)(by_a_library ? close_here(fd) : close(fd));
        }
    }
}

/* Two handlers: what a library closes comes after that library's own, which it
 * has registered before it opened the first; other descriptors may have been
 * earlier than both. */
bool is_watching(bool by_a_library)
{
    return by_a_library ? run_in_children_once<close_descriptors<true>>()
                        : run_in_children_once<close_descriptors<false>>();
}

} // namespace

bool run_in_children(void (*handler)())
{
    return pthread_atfork(nullptr, nullptr, handler) == 0;
}

closed_in_children::closed_in_children(int fd, int (*close)(int))
{
    struct stat info;
    if (!is_watching(close != nullptr) || (fd < 0) || (fd >= max_fds) ||
        (fstat(fd, &info) != 0)) {
        return;
    }
    entry &fresh = entries[static_cast<size_t>(fd)];
    fd_          = fd;
    number_      = ++last_number;
    fresh.device.store(info.st_dev);
    fresh.inode.store(info.st_ino);
    fresh.close.store(close);
    fresh.number.store(number_);
    int end = entries_end.load();
    while ((end <= fd) && !entries_end.compare_exchange_weak(end, fd + 1)) {}
}

void closed_in_children::forget()
{
    if (fd_ >= 0) {
        uint64_t own = number_;
        entries[static_cast<size_t>(fd_)].number.compare_exchange_strong(own,
                                                                         0);
    }
}

/* Before the first lock. Several threads may do so at once, and a fork may come
 * between: nobody waits for another, and the handler may be there twice. */
void child_mutex::enlist()
{
    if (!renewing.load()) {
        renewing.store(run_in_children(renew_all));
    }
    for (auto &place : mutexes) {
        child_mutex *there = nullptr;
        if (place.compare_exchange_strong(there, this) || (there == this)) {
            break;
        }
    }
    listed_.store(true, std::memory_order_release);
}

void child_mutex::renew_all()
{
    for (const auto &place : mutexes) {
        child_mutex *each = place.load();
        if (each == nullptr) {
            break;
        }
        if (each->held_.exchange(false)) {
            each->abandoned_ = true;
        }
        std::construct_at(&each->mutex_);
    }
}

} // namespace gaudi::util
