/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What goes over a link: control messages of its socket, and the layout of its
 * segment, a sealed file in memory that the client makes and both map.
 *
 *   page 0        link_control
 *   message ring  ring_bytes     active messages, client to server
 *   requests      max_requests   copies that the client asks the server for
 *   chunks                       host memory that these are from or to
 *
 * Both sides take nothing in the segment for true: they read each field once,
 * and check it. What a side does to it hurts this link alone.
 */
#pragma once

#include "hlthunk_shim/ports/connection.h"
#include "uct/gaudi/ipc/ring.h"
#include "util/addresses.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gaudi::ipc {

/* --- the socket ------------------------------------------------------------*/

enum class message_type : uint32_t {
    hello = 1, /**< client: the first one, with the segment's descriptor */
    welcome,   /**< server: to use, or why not */
    bell,      /**< either: to one that has said that it sleeps */
    ports,     /**< client: asks for a connection of ports; server: answers */
    revoke,    /**< server: a key has ended; client: it uses it no more */
    quiet,     /**< client, as it ends: nothing is under way over its ports */
};

struct hello_message {
    message_type type = message_type::hello;
    uint16_t version; /**< wire_version */
    uint16_t reserved = 0;
    uint64_t process;   /**< whose interface */
    uint32_t interface; /**< its number; 0: none, for requests alone */
    uint32_t pid;       /**< of the client, for messages to people */
    uint32_t chunk_bytes;
    uint32_t chunks;
};

struct welcome_message {
    message_type type = message_type::welcome;
    int32_t error; /**< 0 or -errno; the server closes then */
};

enum class bell_reason : uint32_t { message, request };

struct bell_message {
    message_type type = message_type::bell;
    bell_reason reason;
};

struct ports_message {
    message_type type = message_type::ports;
    uint32_t number; /**< the client's, of the connection */
    uint32_t card;   /**< base::pci_address of the server's card */
    int32_t error;   /**< of the answer: 0 or -errno */
    shim::port_offer offer;
};

struct revoke_message {
    message_type type = message_type::revoke;
    uint32_t reserved = 0;
    uint64_t word; /**< of the key */
};

struct quiet_message {
    message_type type = message_type::quiet;
};

/** The longest message, bytes. */
inline constexpr size_t max_message = 1024;
static_assert(sizeof(ports_message) <= max_message);

/* --- the segment -----------------------------------------------------------*/

enum class request_kind : uint32_t {
    get,   /**< from memory of the server to a chunk */
    put,   /**< from a chunk to there */
    write, /**< from device memory of the server, over ports, to memory of the
                client's card */
    check, /**< nothing, if the key is valid */
};

struct request_body {
    uint64_t word    = 0; /**< of the key of the server's memory */
    uint64_t address = 0; /**< in it */
    uint64_t length  = 0; /**< bytes */
    uint64_t offset  = 0; /**< get, put: in the chunks; write: where the
                               client's card has the target */
    request_kind kind = request_kind::check;
    uint32_t number   = 0; /**< write: of the ports_message */
};

struct alignas(64) link_request : request_body {
    int64_t result;              /**< of one that has ended: 0 or -errno */
    std::atomic<uint64_t> ended; /**< one more than the request's number */
};
static_assert(sizeof(link_request) == 64);

/** Each line is written by one side mostly. */
struct link_control {
    ring_control ring;
    alignas(ring_line) std::atomic<uint64_t> posted; /**< requests so far */
    std::atomic<uint32_t> client_sleeps; /**< 1: ring when a request ends */
    alignas(ring_line) std::atomic<uint32_t> server_awake; /**< 0: ring after
                                                                a request */
};

inline constexpr size_t page_bytes     = 4096;
inline constexpr size_t ring_bytes     = ring_min_size;
inline constexpr unsigned max_requests = 64;
inline constexpr size_t ring_offset    = page_bytes;
inline constexpr size_t request_offset = ring_offset + ring_bytes;
inline constexpr size_t chunk_offset =
    request_offset + max_requests * sizeof(link_request);
inline constexpr uint64_t max_chunk_bytes = uint64_t{1} << 28; /* all */

static_assert((sizeof(link_control) <= page_bytes) &&
              (chunk_offset % page_bytes == 0));

/** Bytes of the chunks of a link, and of its segment. */
constexpr uint64_t bytes_of_chunks(uint64_t chunk_bytes, uint64_t chunks)
{
    return util::round_up(chunk_bytes * chunks, page_bytes);
}
constexpr uint64_t segment_bytes(uint64_t chunk_bytes, uint64_t chunks)
{
    return chunk_offset + bytes_of_chunks(chunk_bytes, chunks);
}

/** A field of the other side's. */
template <typename Number>
[[nodiscard]] Number read_once(const Number &shared)
{
    return *static_cast<const volatile Number *>(&shared);
}

} // namespace gaudi::ipc
