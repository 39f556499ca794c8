/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How an active message gets into room that a sending end has for it. The end
 * derives from this, and has
 *
 *   static constexpr size_t max_payload;            or a member
 *   ucs_status_t reserve(size_t length, void *&room_p);
 *   ucs_status_t publish(uint8_t id, size_t length);   what is in the room
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <cstring>

namespace gaudi::ipc {

template <typename End>
class message_writer {
public:
    /* Send a message of at most max_payload bytes. UCS_ERR_NO_RESOURCE: there
     * is no room now. UCS_ERR_ENDPOINT_TIMEOUT: the receiver takes no more, or
     * has ended, which is noticed while there is no room. */

    [[nodiscard]] ucs_status_t send(uint8_t id, uint64_t header,
                                    const void *payload, size_t length)
    {
        void *room;
        const ucs_status_t status =
            self().reserve(sizeof(header) + length, room);
        if (status != UCS_OK) [[unlikely]] {
            return status;
        }
        std::memcpy(room, &header, sizeof(header));
        if (length > 0) { /* else there may be no payload to point at */
            std::memcpy(static_cast<char *>(room) + sizeof(header), payload,
                        length);
        }
        return self().publish(id, sizeof(header) + length);
    }

    [[nodiscard]] ucs_status_t send_iov(uint8_t id, const uct_iov_t *iov,
                                        size_t count)
    {
        void *room;
        const size_t length       = uct_iov_total_length(iov, count);
        const ucs_status_t status = self().reserve(length, room);
        if (status != UCS_OK) [[unlikely]] {
            return status;
        }
        ucs_iov_iter_t start;
        ucs_iov_iter_init(&start);
        uct_iov_to_buffer(iov, count, &start, room, length);
        return self().publish(id, length);
    }

    /** The callback writes into the room.
     *  @param length_p  Of the message, which was perhaps sent in vain; set
     *                   once it has been packed. */
    [[nodiscard]] ucs_status_t send_packed(uint8_t id, uct_pack_callback_t pack,
                                           void *arg, ssize_t &length_p)
    {
        void *room;
        const ucs_status_t status = self().reserve(self().max_payload, room);
        if (status != UCS_OK) [[unlikely]] {
            return status;
        }
        length_p = static_cast<ssize_t>(pack(room, arg));
        return self().publish(id, static_cast<size_t>(length_p));
    }

private:
    [[nodiscard]] End &self() { return static_cast<End &>(*this); }
};

} // namespace gaudi::ipc
