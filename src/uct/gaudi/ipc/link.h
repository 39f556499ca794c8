/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The client's end of a link: from an interface here (or an engine of the
 * program interface) to one of another process, or of this one. Active messages
 * and requests go by it, see protocol.h; the other end is inbound.h.
 *
 * Opening does not wait for the peer: messages and requests are there when it
 * gets to them. Used by the thread of its interface; the service thread reads
 * its socket. The socket's end is the peer's.
 */
#pragma once

#include "uct/gaudi/base/transfer/remote_memory.h"
#include "uct/gaudi/base/ucx/packing.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/address.h"
#include "uct/gaudi/ipc/event.h"
#include "uct/gaudi/ipc/protocol.h"
#include "util/file_mapping.h"
#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace gaudi::ipc {

/** Host memory that requests are from or to. */
struct link_options {
    size_t chunk_bytes;
    unsigned chunks;
};

class link final : public base::remote_peer,
                   public std::enable_shared_from_this<link> {
public:
    /** Longest message in bytes, header of @ref send included. */
    static constexpr size_t max_payload = ring_max_payload;

    /** @param wakes  Signalled by the ends of requests and of the link.
     *  @return UCS_ERR_UNREACHABLE: nobody is there, or of another user.
     *          UCS_ERR_NO_RESOURCE without descriptors, or when too many wait
     *          for the peer, for 0.09 s. UCS_ERR_NO_MEMORY. Logged at debug
     *          level. */
    [[nodiscard]] static ucs_status_t open(const interface_address &to,
                                           const link_options &options,
                                           const std::shared_ptr<event> &wakes,
                                           std::shared_ptr<link> &link_p);
    ~link() override;

    /* Send a message of at most max_payload bytes. UCS_ERR_NO_RESOURCE: there
     * is no room now. UCS_ERR_ENDPOINT_TIMEOUT: the link has ended. */

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

    /** The callback writes into the ring.
     *  @param length_p  Of the message; set once it has been packed.
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

    /** Whether the receiver has read all of these, or never will. */
    [[nodiscard]] bool is_delivered(uint64_t sent)
    {
        return is_closed() || writer_.is_read(sent);
    }

    /** Whether no message will be read any more: the peer has closed its
     *  interface, or is lost. A few loads. */
    [[nodiscard]] bool is_closed() const
    {
        return is_over() || writer_.is_corrupted() ||
               (control().ring.state.load(std::memory_order_relaxed) ==
                ring_closed);
    }

    /** The same, though the service's thread has not seen it yet. A system
     *  call. */
    [[nodiscard]] bool has_hung_up() const;

    /** Whether the peer has ended with its interface open. Without a message
     *  that it accepts the link it may have closed that before. */
    [[nodiscard]] bool is_lost() const
    {
        return is_over() && (control().ring.state.load() != ring_closed) &&
               (is_welcome_.load() || (sent() != 0));
    }

    [[nodiscard]] const interface_address &address() const { return address_; }
    [[nodiscard]] const std::string &name() const { return name_; }

    /* base::remote_peer */
    [[nodiscard]] bool is_over() const override
    {
        return ended_.load(std::memory_order_acquire);
    }
    /** In request_queue.cc. */
    [[nodiscard]] int
    open_lane(const base::transfer_options &options,
              std::unique_ptr<base::owner_lane> &lane_p) override;

    /* --- for request_queue ------------------------------------------------*/

    [[nodiscard]] link_control &control() const
    {
        return *reinterpret_cast<link_control *>(segment_.start());
    }
    [[nodiscard]] link_request &request(uint64_t number) const
    {
        return reinterpret_cast<link_request *>(
            segment_.start() + request_offset)[number % max_requests];
    }
    [[nodiscard]] std::span<char> chunks() const
    {
        return {segment_.start() + chunk_offset,
                bytes_of_chunks(options_.chunk_bytes, options_.chunks)};
    }
    void ring_bell(bell_reason why) const;

    /** Ask the server to connect ports; one answer is kept for each number.
     *  @return 0 or -errno. */
    [[nodiscard]] int ask_for_ports(uint32_t number, uint32_t card,
                                    const shim::port_offer &offer);
    /** @return -EINPROGRESS before there is an answer, which is taken. */
    [[nodiscard]] int take_ports_answer(uint32_t number,
                                        shim::port_offer &offer_p);
    /** Ports may still write to the server's memory, although they are closed
     *  here. */
    void note_unquiet_ports() { are_ports_quiet_ = false; }

    /* --- for the service thread -------------------------------------------*/

    [[nodiscard]] int socket() const { return socket_.get(); }
    uint64_t name_in_service = 0; /**< the service's name of the socket */

    /** Take what has come. @return false: the link has ended. */
    [[nodiscard]] bool receive();

    /** How many keys the peer has revoked. */
    [[nodiscard]] uint64_t revocations() const { return revocations_.load(); }

    /** Say that keys of a word are not used any more. */
    void answer_revocation(uint64_t word) const;

private:
    link(const interface_address &to, const link_options &options,
         std::shared_ptr<event> wakes);
    [[nodiscard]] ucs_status_t connect();
    [[nodiscard]] int greet();
    [[nodiscard]] bool take(const char *message, size_t length);

    ucs_status_t reserve(size_t length, void *&room_p)
    {
        room_p = writer_.reserve(length);
        if (room_p == nullptr) [[unlikely]] {
            return is_closed() ? UCS_ERR_ENDPOINT_TIMEOUT : UCS_ERR_NO_RESOURCE;
        }
        last_ = room_p;
        return UCS_OK;
    }

    ucs_status_t publish(uint8_t id, size_t length)
    {
        writer_.publish(id, length);
        if ((writer_.state() != ring_polled) || is_over()) [[unlikely]] {
            return wake_reader();
        }
        writer_.prepare();
        return UCS_OK;
    }
    ucs_status_t wake_reader();

    const interface_address address_;
    const link_options options_;
    const std::string name_;
    const std::shared_ptr<event> wakes_;
    util::unique_fd socket_;
    util::closed_in_children not_in_children_;
    util::file_mapping segment_;
    ring_writer writer_;
    const void *last_     = nullptr;
    bool has_ports_       = false;
    bool are_ports_quiet_ = true;
    std::atomic<bool> is_welcome_{false};
    std::atomic<bool> ended_{false};
    std::atomic<uint64_t> revocations_{0};

    std::mutex lock_; /* leaf: of the answers */
    std::map<uint32_t, ports_message> ports_answers_;
};

/** The links of an interface: one to each other interface, however many
 *  endpoints use it. One that no endpoint uses stays until its messages were
 *  read: those of the next link would overtake them. */
class link_table {
public:
    using links = std::vector<std::shared_ptr<link>>;

    /** Find one, or open one, for an endpoint.
     *  @return As link::open. */
    [[nodiscard]] ucs_status_t find(const interface_address &to,
                                    const link_options &options,
                                    const std::shared_ptr<event> &wakes,
                                    std::shared_ptr<link> &link_p);

    /** An endpoint does not use it any more. */
    void put(const link &which);

    /** Take out those that have ended, which endpoints may still hold, or that
     *  none needs. */
    [[nodiscard]] links take_unused();

private:
    struct entry {
        std::shared_ptr<link> way;
        unsigned endpoints = 0;
    };
    std::map<interface_address, entry> links_;
    links ended_; /* in whose place others were opened */
};

} // namespace gaudi::ipc
