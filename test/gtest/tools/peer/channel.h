/**
 * Socket between the two sides of a transfer: what they have to tell each other
 * besides the transfer itself.
 */
#pragma once

#include <cstddef>
#include <vector>

namespace peer {

/** The descriptor by which programs have it from their start. */
inline constexpr int peer_fd = 3;

/** Owns a connected stream socket. One thread at a time. */
class channel {
public:
    explicit channel(int fd) : fd_(fd) {}
    ~channel();
    channel(channel &&other) noexcept;
    channel(const channel &)            = delete;
    channel &operator=(const channel &) = delete;

    void send(const void *data, size_t size) const;
    void receive(void *data, size_t size) const;

    /** Bytes with their number in front. */
    void send_block(const std::vector<char> &data) const;
    [[nodiscard]] std::vector<char> receive_block() const;

    /** Send a block, and receive that of the other side. */
    [[nodiscard]] std::vector<char>
    exchange(const std::vector<char> &data) const;

    /** One byte. */
    void say(char letter) const { send(&letter, 1); }
    [[nodiscard]] char hear() const;

    /** Another socket between the same two: one calls make, one accept. */
    [[nodiscard]] channel make_another() const;
    [[nodiscard]] channel accept_another() const;

    /** One byte, if it is there. Dies when the other side is gone. */
    [[nodiscard]] bool try_hear(char &letter) const;

    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_;
};

} // namespace peer
