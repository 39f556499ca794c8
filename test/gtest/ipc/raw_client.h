/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Clients of the service that speak its protocol by hand.
 */
#pragma once

#include "common/process_state.h"
#include "uct/gaudi/ipc/socket.h"
#include "util/file_mapping.h"
#include "gtest/ipc/fixture.h"

#include <cerrno>
#include <optional>
#include <thread>

#include <unistd.h>

namespace gaudi::test {

inline constexpr uint32_t chunk      = 16384;
inline constexpr uint32_t chunks     = 4;
inline constexpr uint64_t data_bytes = uint64_t{chunk} * chunks;
inline constexpr size_t total        = ipc::segment_bytes(chunk, chunks);

inline ipc::hello_message hello_to(uint64_t process, uint32_t interface = 0)
{
    return {.version     = ipc::wire_version,
            .process     = process,
            .interface   = interface,
            .pid         = static_cast<uint32_t>(getpid()),
            .chunk_bytes = chunk,
            .chunks      = chunks};
}

inline util::unique_fd make_segment(size_t length = total)
{
    return util::make_lasting_file("gtest", length);
}

/* A client that has said nothing yet. */
class raw_socket {
public:
    explicit raw_socket(uint64_t process)
    {
        int error = 0;
        while (!(fd = ipc::connect_to_name(process, error)) &&
               (error == EAGAIN)) {
            std::this_thread::yield();
        }
        EXPECT_EQ(0, error);
    }

    /* What cannot be sent because the service has closed the socket is fine. */
    template <typename Message>
    void send(const Message &message, int with = -1) const
    {
        (void)ipc::send_message(fd.get(), &message, sizeof(message), with);
    }
    void ring_bell(ipc::bell_reason why = ipc::bell_reason::request) const
    {
        send(ipc::bell_message{.reason = why});
    }

    /* @return The next message of a type, or nothing when the service has
     * closed the socket. */
    template <typename Message>
    std::optional<Message> receive() const
    {
        Message message{};
        while (is_readable(fd.get())) {
            const ssize_t length =
                ipc::receive_message(fd.get(), &message, sizeof(message));
            if ((length <= 0) && (length != -EAGAIN)) {
                return std::nullopt;
            }
            if ((length == sizeof(message)) &&
                (message.type == Message{}.type)) {
                return message;
            }
        }
        ADD_FAILURE() << "neither a message nor the end";
        return std::nullopt;
    }
    [[nodiscard]] bool is_closed() const
    {
        return !receive<ipc::ports_message>().has_value();
    }

    util::unique_fd fd;
};

/* Who has brought a segment. */
struct raw_client : raw_socket {
    explicit raw_client(uint64_t process, uint32_t interface = 0,
                        uint32_t count = chunks)
        : raw_socket(process)
    {
        const size_t length        = ipc::segment_bytes(chunk, count);
        const util::unique_fd file = make_segment(length);
        ipc::hello_message hello   = hello_to(process, interface);
        hello.chunks               = count;
        EXPECT_TRUE(segment.map(file.get(), 0, length));
        send(hello, file.get());
    }

    [[nodiscard]] ipc::link_control &control() const
    {
        return *reinterpret_cast<ipc::link_control *>(segment.start());
    }
    [[nodiscard]] ipc::link_request &slot(uint64_t number) const
    {
        return reinterpret_cast<ipc::link_request *>(
            segment.start() + ipc::request_offset)[number % ipc::max_requests];
    }
    [[nodiscard]] char *data() const
    {
        return segment.start() + ipc::chunk_offset;
    }

    void post(const ipc::request_body &asked)
    {
        static_cast<ipc::request_body &>(slot(posted)) = asked;
        control().posted                               = ++posted;
        ring_bell();
    }

    /* @return What became of it; nothing when it does not end. */
    std::optional<int64_t> run(const ipc::request_body &asked)
    {
        post(asked);
        const ipc::link_request &last = slot(posted - 1);
        return eventually([&] { return last.ended == posted; })
                   ? std::make_optional(last.result)
                   : std::nullopt;
    }

    util::file_mapping segment;
    uint64_t posted = 0;
};

} // namespace gaudi::test
