/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/copy_engine.h"

#include "util/made_once.h"
#include "util/process.h"

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>

#include <dlfcn.h>

namespace gaudi::emu {

namespace {

/* A copy that is being made by this thread. */
struct guarded_copy {
    const char *dst;
    const char *src;
    size_t size;
    jmp_buf back;

    [[nodiscard]] bool covers(const void *fault) const
    {
        const auto at = reinterpret_cast<uintptr_t>(fault);
        return (at - reinterpret_cast<uintptr_t>(dst) < size) ||
               (at - reinterpret_cast<uintptr_t>(src) < size);
    }
};

/* The handler may be the first to look at it, and must not allocate it. */
[[gnu::tls_model("initial-exec")]] thread_local guarded_copy *volatile copying =
    nullptr;

struct sigaction before_segv;
struct sigaction before_bus;

/* What would have been done without this handler. */
void hand_on(const struct sigaction &to, int number, siginfo_t *info,
             void *where)
{
    if ((to.sa_flags & SA_SIGINFO) != 0) {
        to.sa_sigaction(number, info, where);
    } else if ((to.sa_handler != SIG_DFL) && (to.sa_handler != SIG_IGN)) {
        to.sa_handler(number);
    } else {
        struct sigaction as_ever {};
        as_ever.sa_handler = SIG_DFL;
        sigaction(number, &as_ever, nullptr);
        raise(number);
    }
}

void note_fault(int number, siginfo_t *info, void *where)
{
    guarded_copy *const made = copying;
    if ((made != nullptr) && made->covers(info->si_addr)) {
        copying = nullptr;
        longjmp(made->back, 1);
    }
    hand_on((number == SIGBUS) ? before_bus : before_segv, number, info, where);
}

/* libc's own function: libucs has one of the name, which does nothing for
 * signals that it handles itself. */
bool install_handler()
{
    void *const libc = util::open_loaded("libc.so.6");
    auto *const set  = reinterpret_cast<decltype(&sigaction)>(
        dlsym((libc != nullptr) ? libc : RTLD_NEXT, "sigaction"));
    struct sigaction own {};
    own.sa_sigaction = note_fault;
    /* No mask is saved for the jump out of it. */
    own.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    return (set(SIGSEGV, &own, &before_segv) == 0) &&
           (set(SIGBUS, &own, &before_bus) == 0);
}

bool guarded_move(void *dst, const char *src, size_t size)
{
    guarded_copy made;
    made.dst  = static_cast<const char *>(dst);
    made.src  = src;
    made.size = size;
    if (_setjmp(made.back) != 0) {
        return false;
    }
    copying = &made;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::memmove(dst, src, size);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    copying = nullptr;
    return true;
}

} // namespace

void guard_copies()
{
    static constinit util::made_once<bool> installed;
    (void)installed.get(install_handler);
}

/* The library of the "nothing moves" test has no copy routine: every test of
 * data has to fail on it. */
#ifdef HLTHUNK_EMU_NO_COPY

bool copy_if_there(char *, const char *, size_t)
{
    return true;
}

#else

bool copy_if_there(char *dst, const char *src, size_t size)
{
    return guarded_move(dst, src, size);
}

#endif

bool read_if_there(void *packet, const char *src, size_t size)
{
    return guarded_move(packet, src, size);
}

} // namespace gaudi::emu
