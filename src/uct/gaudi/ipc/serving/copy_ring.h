/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The file through which one process has another one copy: requests, and the
 * chunks of host memory that they are about.
 *
 * The client makes it, with all of its length for good, and gives it to the
 * server. One thread of each uses it at a time. A request is in the slot of its
 * number; it is there when `posted` is beyond that, and has ended when its
 * `ended` is. Whoever sleeps says so, looks again, and is rung. Whoever makes
 * progress says on which core: two that take turns on one would each use up a
 * time slice for what one ring holds.
 *
 * The server takes nothing in it for true: it reads each field once, and checks
 * it. To the client a server that writes nonsense is one that copies nonsense.
 */
#pragma once

#include "uct/gaudi/ipc/process/process_id.h"
#include "util/addresses.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <sched.h>
#include <sys/stat.h>

namespace gaudi::ipc {

/** Whether what another process sent to be rung is an event: a write to
 *  anything else may wait, or end this process (SIGPIPE). The kernel gives what
 *  has no file system no type. */
[[nodiscard]] inline bool is_event(int fd)
{
    struct stat info;
    return (fstat(fd, &info) == 0) && ((info.st_mode & S_IFMT) == 0);
}

/** Looks that find nothing before who makes progress gives its core to the
 *  other side, where that was on the same one. */
constexpr unsigned looks_before_yield = 32;

/** The core that this thread is on, as @ref copy_ring has it. */
[[nodiscard]] inline uint32_t own_core()
{
    return static_cast<uint32_t>(sched_getcpu()) + 1;
}

enum request_kind : uint32_t {
    request_get,   /**< from device memory of the server, */
    request_put,   /**< to there */
    request_ports, /**< a connection of its ports: the chunk has a
                        shim::port_offer, then that of the other end */
    request_write  /**< from device memory of the server, over such ports */
};

struct request_body {
    uint64_t address = 0; /**< of device memory of the server; ports: of the
                           card */
    uint64_t offset = 0;  /**< in the chunks; write: where the client's card has
                           what is to be written */
    uint64_t length = 0;  /**< bytes */
    uint64_t stamp  = 0;  /**< of a key to that memory, */
    uint32_t cell   = 0;  /**< and where the server has it */
    uint32_t kind   = 0;  /**< request_kind */
    uint32_t link   = 0;  /**< ports, write: the client's name of the
                               connection */
    uint32_t reserved = 0;
};

struct copy_request : request_body {
    int64_t result;              /**< of what has ended: 0 or -errno */
    std::atomic<uint64_t> ended; /**< one more than the number */
};

struct copy_ring {
    static constexpr uint64_t right_magic = 0x676e697279706f63; /* "copyring" */
    static constexpr size_t page          = 4096;
    static constexpr uint64_t max_slots   = 1u << 14;
    static constexpr uint64_t max_data_bytes = uint64_t{1} << 28;

    uint64_t magic;
    uint32_t version; /**< wire_version */
    uint32_t slots;
    uint64_t data_bytes;
    process_id client;

    alignas(64) std::atomic<uint64_t> posted; /**< requests so far */
    std::atomic<uint32_t> client_sleeps;      /**< 1: it is to be rung */
    std::atomic<uint32_t> client_gone;        /**< 1: it wants nothing more */
    std::atomic<uint32_t> client_core;        /**< see own_core(); 0: of none */
    alignas(64) std::atomic<uint32_t> server_sleeps; /**< 1: as above */
    std::atomic<uint32_t> server_gone; /**< 1: it copies nothing more */
    std::atomic<uint32_t> server_core; /**< of an interface; 0: of none */

    [[nodiscard]] copy_request *requests()
    {
        return reinterpret_cast<copy_request *>(reinterpret_cast<char *>(this) +
                                                page);
    }

    /** Where the chunks begin, and all ends, in the file. */
    [[nodiscard]] static size_t data_offset(uint32_t slots)
    {
        return page + util::round_up(slots * sizeof(copy_request), page);
    }
    [[nodiscard]] static size_t file_size(uint32_t slots, uint64_t data_bytes)
    {
        return data_offset(slots) + data_bytes;
    }
};

static_assert((sizeof(copy_ring) <= copy_ring::page) &&
              (sizeof(copy_request) == 64));

} // namespace gaudi::ipc
