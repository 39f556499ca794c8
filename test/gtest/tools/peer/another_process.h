/**
 * This program once more, as another process.
 */
#pragma once

#include "gtest/tools/peer/channel.h"

#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

namespace peer {

/** Started with other words, and a socket as its @ref peer_fd. Ends with this
 *  object. */
class another_process {
public:
    explicit another_process(std::vector<std::string> words);
    ~another_process() { end(); }
    another_process(const another_process &)            = delete;
    another_process &operator=(const another_process &) = delete;

    [[nodiscard]] const channel &socket() const { return *socket_; }

    /** By SIGKILL, unless it is over. */
    void end();

    /** Wait until it ends by itself. Dies unless it ends well. */
    void expect_end();

private:
    pid_t pid_ = 0;
    std::unique_ptr<channel> socket_;
};

} // namespace peer
