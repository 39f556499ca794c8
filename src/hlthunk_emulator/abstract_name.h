/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace gaudi::emu {

/** A name of this user's for a socket, which is free when that is closed. */
struct abstract_name {
    explicit abstract_name(const std::string &what)
    {
        address.sun_family = AF_UNIX;
        /* The leading zero byte makes the name abstract. */
        const int bytes =
            std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          "hlthunk-emu/%u/%s", geteuid(), what.c_str());
        length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                        static_cast<size_t>(bytes));
    }

    [[nodiscard]] const sockaddr *get() const
    {
        return reinterpret_cast<const sockaddr *>(&address);
    }
    /** Without the zero byte before it. */
    [[nodiscard]] const char *text() const { return address.sun_path + 1; }

    sockaddr_un address{};
    socklen_t length = 0;
};

} // namespace gaudi::emu
