/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The sending end of active messages: a ring in the mailbox of a receiver, and
 * the table by which endpoints to one receiver share it.
 *
 * One thread at a time. No call blocks, except that open() asks the other
 * process for files, with remote_process's timeout.
 */
#pragma once

#include "uct/gaudi/base/ucx/packing.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/messages/mailbox.h"
#include "uct/gaudi/ipc/messages/ring.h"
#include "uct/gaudi/ipc/process/remote_process.h"
#include "util/file_mapping.h"
#include "util/unique_fd.h"

#include <cstring>
#include <map>
#include <memory>
#include <utility>

namespace gaudi::ipc {

class connection {
public:
    /** Longest message in bytes, header of @ref send included. */
    static constexpr size_t max_payload = ring_max_payload;

    /** Take a ring of a mailbox.
     *  @return UCS_ERR_UNREACHABLE: process or mailbox are gone, or out of
     *          reach. UCS_ERR_NO_RESOURCE: all rings are taken, or no room for
     *          descriptors. UCS_ERR_INVALID_ADDR: it is no mailbox of this
     *          version. UCS_ERR_NO_MEMORY, UCS_ERR_TIMED_OUT. Said at debug
     *          level. */
    [[nodiscard]] static ucs_status_t
    open(const mailbox_address &address,
         std::unique_ptr<connection> &connection_p);

    /** What was sent is delivered, if the receiver lives. */
    ~connection();

    /* Send a message of at most max_payload bytes. UCS_ERR_NO_RESOURCE: there
     * is no room now. UCS_ERR_ENDPOINT_TIMEOUT: the receiver takes no more, or
     * has ended, which is noticed while there is no room. */

    [[nodiscard]] ucs_status_t send(uint8_t id, uint64_t header,
                                    const void *payload, size_t length)
    {
        void *room;
        const ucs_status_t status = reserve(sizeof(header) + length, room);
        if (status != UCS_OK) [[unlikely]] {
            return status;
        }
        std::memcpy(room, &header, sizeof(header));
        if (length > 0) { /* else there may be no payload to point at */
            std::memcpy(static_cast<char *>(room) + sizeof(header), payload,
                        length);
        }
        return publish(id, sizeof(header) + length);
    }

    [[nodiscard]] ucs_status_t send_iov(uint8_t id, const uct_iov_t *iov,
                                        size_t count)
    {
        void *room;
        const size_t length       = uct_iov_total_length(iov, count);
        const ucs_status_t status = reserve(length, room);
        if (status != UCS_OK) [[unlikely]] {
            return status;
        }
        ucs_iov_iter_t start;
        ucs_iov_iter_init(&start);
        uct_iov_to_buffer(iov, count, &start, room, length);
        return publish(id, length);
    }

    /** The callback writes into the room.
     *  @param length_p  Of the message, which was perhaps sent in vain; set
     *                   once it has been packed.
     *  @return Also what base::call_pack does; nothing was sent then. */
    [[nodiscard]] ucs_status_t send_packed(uint8_t id, uct_pack_callback_t pack,
                                           void *arg, ssize_t &length_p)
    {
        void *room;
        const ucs_status_t status = reserve(max_payload, room);
        if (status != UCS_OK) [[unlikely]] {
            return status;
        }
        const ssize_t packed = base::call_pack(pack, room, arg);
        if (packed < 0) [[unlikely]] {
            writer_.abandon();
            return static_cast<ucs_status_t>(packed);
        }
        length_p = packed;
        return publish(id, static_cast<size_t>(packed));
    }

    /** The message that was sent last, for the log: the receiver may have
     *  changed it. */
    [[nodiscard]] const void *last_sent() const { return last_; }

    /** Whether any message fits now. */
    [[nodiscard]] bool has_room() { return writer_.has_room(); }

    /** Stands for the messages that were sent so far. */
    [[nodiscard]] uint64_t sent() const { return writer_.position(); }

    /** Whether the receiver has taken all of these, or never will. */
    [[nodiscard]] bool is_delivered(uint64_t sent)
    {
        return is_closed() || writer_.is_read(sent);
    }

    /** Whether no message will be taken any more. A few loads. */
    [[nodiscard]] bool is_closed() const;

    /** Whether the receiver lives and has its mailbox. A system call. */
    [[nodiscard]] bool peer_alive() const;

    /** Whether it has ended and left its mailbox open. A system call. */
    [[nodiscard]] bool peer_lost() const;

    [[nodiscard]] const std::shared_ptr<remote_process> &process() const
    {
        return process_;
    }

    [[nodiscard]] const mailbox_address &address() const { return address_; }

private:
    /* Tries on a full ring from one look at the receiver to the next. */
    static constexpr unsigned tries_per_look = 256;

    connection(std::shared_ptr<remote_process> process,
               const mailbox_address &address);
    ucs_status_t attach();
    ucs_status_t take_ring(int file, const mailbox_layout &layout);
    ucs_status_t try_ring(int file, const mailbox_layout &layout,
                          unsigned index);
    void ring_the_bell();
    ucs_status_t full();
    ucs_status_t tell_reader(ring_state state);

    [[nodiscard]] mailbox_header &header() const
    {
        return *reinterpret_cast<mailbox_header *>(header_.start());
    }

    ucs_status_t reserve(size_t length, void *&room_p)
    {
        room_p = writer_.reserve(length);
        if (room_p == nullptr) [[unlikely]] {
            return full();
        }
        last_ = room_p;
        return UCS_OK;
    }

    ucs_status_t publish(uint8_t id, size_t length)
    {
        writer_.publish(id, length);
        const ring_state state = writer_.state();
        if (state != ring_polled) [[unlikely]] {
            return tell_reader(state);
        }
        writer_.prepare();
        return UCS_OK;
    }

    const std::shared_ptr<remote_process> process_;
    const mailbox_address address_;
    unsigned index_ = 0; /* of the ring */
    ring_writer writer_;
    const void *last_      = nullptr;
    ring_control *control_ = nullptr; /* once there is a ring */
    unsigned tries_        = 0;       /* while the ring was full */
    bool gone_             = false;   /* the receiver has ended */
    util::file_mapping header_;
    util::file_mapping ring_;
    util::unique_fd signal_;
};

/** The connections of an interface: one for each mailbox, however many
 *  endpoints use it. */
using connection_table = std::map<mailbox_address, std::weak_ptr<connection>>;

/** Find one in a table, or open one when there is none that works.
 *  @return As connection::open. */
[[nodiscard]] ucs_status_t
share_connection(connection_table &known, const mailbox_address &address,
                 std::shared_ptr<connection> &connection_p);

} // namespace gaudi::ipc
