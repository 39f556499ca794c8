/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * System calls that are forbidden, as containers do it.
 */
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gaudi::test {

/** Have a system call of this process answered with EPERM from now on.
 *  @return 0, or -1 with errno. */
inline long deny_system_call(uint32_t number)
{
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter{4, steps};
    return (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
               ? -1
               : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                         SECCOMP_FILTER_FLAG_TSYNC, &filter);
}

/** Have this thread make no system call from now on, until it ends: each sends
 *  it SIGSYS instead. @return As @ref deny_system_call. */
inline long trap_system_calls()
{
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter{5, steps};
    return (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
               ? -1
               : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}

} // namespace gaudi::test
