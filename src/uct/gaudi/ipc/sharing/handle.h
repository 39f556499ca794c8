/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Handles that programs pass between their processes: 64 bytes, where a key
 * (key.h) takes more. A handle names a process, and a file that it hands out,
 * in which the key is. So nobody gets a key but who may have files of that
 * process, and none of memory that it does not share any more.
 *
 * Whoever reads a handle takes it for a claim. Threads: any.
 */
#pragma once

#include "uct/gaudi/ipc/process/process_id.h"
#include "uct/gaudi/ipc/sharing/key.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace gaudi::ipc {

struct wire_handle {
    uint64_t nonce; /**< of process_id */
    /** process_id::start_time, which is no more in its lower 40 bits for 300
     *  years after a boot, and above it a checksum of all the rest. */
    uint64_t start_and_sum;
    file_ref file; /**< the key */
    machine_address machine;
    uint32_t pid;
};

inline constexpr size_t handle_bytes = 64;
static_assert(sizeof(wire_handle) <= handle_bytes);
static_assert(std::is_trivially_copyable_v<wire_handle>);

/** A handle as programs have it; bytes behind the structure are 0. */
using handle_image = std::array<unsigned char, handle_bytes>;

/** Make an image, with its checksum: what is above 40 bits of start_and_sum
 * does not matter. */
[[nodiscard]] handle_image seal_handle(const wire_handle &handle);

/** A key that this process hands out to who has its handle, until it goes. */
class offered_key {
public:
    offered_key()                               = default;
    offered_key(const offered_key &)            = delete;
    offered_key &operator=(const offered_key &) = delete;
    ~offered_key() { withdraw(); }

    /** Hand out a key, and no more another one.
     *  @return As file_service::add. */
    [[nodiscard]] ucs_status_t offer(const wire_key &key);

    [[nodiscard]] const wire_key &key() const { return key_; }
    [[nodiscard]] const handle_image &handle() const { return handle_; }

private:
    void withdraw();

    wire_key key_        = {}; /* with stamp 0: none */
    file_ref file_       = {};
    handle_image handle_ = {};
};

/**
 * Get the key that a handle is for.
 *
 * @return UCS_ERR_INVALID_PARAM: nobody made this handle, or this process did.
 *         UCS_ERR_UNREACHABLE: its process is not where this one could use its
 *         memory, or gives it nothing. UCS_ERR_ENDPOINT_TIMEOUT: it has ended.
 *         UCS_ERR_CONNECTION_RESET: it does not share the memory any more.
 *         UCS_ERR_TIMED_OUT: it does not answer. UCS_ERR_NO_RESOURCE: there are
 *         no descriptors for it. Each was logged as an error.
 */
[[nodiscard]] ucs_status_t fetch_key(const handle_image &handle,
                                     wire_key &key_p);

} // namespace gaudi::ipc
