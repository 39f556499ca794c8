/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <cstdint>

#include <sys/epoll.h>

namespace gaudi::util {

/** Have an epoll be readable when a descriptor is.
 *  @param how  More than EPOLLIN. @return false: see errno. */
inline bool add_event(int epoll_fd, int fd, uint32_t how = 0)
{
    epoll_event event{};
    event.events = EPOLLIN | how;
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

} // namespace gaudi::util
