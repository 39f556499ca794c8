/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Socket between the two sides of a transfer: what they have to tell each other
 * besides the transfer itself. And the other side as a process.
 */
#pragma once

#include "util/unique_fd.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace peer {

/** The descriptor by which programs have it from their start. */
inline constexpr int peer_fd = 3;

/** Owns a connected stream socket. One thread at a time. */
class channel {
public:
    explicit channel(int fd) : fd_(fd) {}

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

    /** The same; 0 when the other side is gone. */
    [[nodiscard]] std::optional<char> listen() const;

    /** To whom may be gone. */
    void whisper(char letter) const;

    [[nodiscard]] int fd() const { return fd_.get(); }

private:
    gaudi::util::unique_fd fd_;
};

/** This program once more, with other words, and a socket as its @ref peer_fd;
 *  started by the words in GAUDI_TEST_AROUND_PEERS, if there are any. Ends with
 *  this object. */
class another_process {
public:
    explicit another_process(std::vector<std::string> words);
    ~another_process() { end(); }
    another_process(const another_process &)            = delete;
    another_process &operator=(const another_process &) = delete;

    [[nodiscard]] const channel &socket() const { return *socket_; }

    /** By SIGKILL, unless it is over. */
    void end();

    void send(int signal) const;

    /** Wait until it ends by itself. @return As waitpid tells it. */
    int wait();

    /** The same. Dies unless it ends well. */
    void expect_end();

private:
    pid_t pid_ = 0;
    std::optional<channel> socket_;
};

} // namespace peer
