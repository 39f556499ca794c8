/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <cstdint>

#include <sys/epoll.h>

namespace gaudi::util {

/** Have an epoll be readable when a descriptor is.
 *  @param how  More than EPOLLIN. @return false: see errno. */
inline bool add_event(int epoll_fd, int fd, uint32_t how = 0,
                      int operation = EPOLL_CTL_ADD)
{
    epoll_event event{};
    event.events = EPOLLIN | how;
    return epoll_ctl(epoll_fd, operation, fd, &event) == 0;
}

/** Change how one is that was added. */
inline bool change_event(int epoll_fd, int fd, uint32_t how)
{
    return add_event(epoll_fd, fd, how, EPOLL_CTL_MOD);
}

} // namespace gaudi::util
