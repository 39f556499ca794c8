/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Owns a file descriptor.
 */
#pragma once

#include <utility>

#include <unistd.h>

namespace gaudi::util {

class unique_fd {
public:
    unique_fd() = default;
    explicit unique_fd(int fd) : fd_(fd) {}
    unique_fd(unique_fd &&other) noexcept : fd_(other.release()) {}
    unique_fd &operator=(unique_fd &&other) noexcept
    {
        reset(other.release());
        return *this;
    }
    ~unique_fd() { reset(); }

    void reset(int fd = -1)
    {
        const int old = std::exchange(fd_, fd);
        if (old >= 0) {
            close(old);
        }
    }

    int release() { return std::exchange(fd_, -1); }

    [[nodiscard]] int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
};

} // namespace gaudi::util
