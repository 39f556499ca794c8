/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The key as it travels: what mkey_pack writes and rkey_unpack reads, and the
 * IPC handle of ucx_gaudi.h.
 *
 * Fixed width, host byte order. A reader takes it for a claim; whether it is
 * valid, its owner says when it is used (exports.h).
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/address.h"

#include <cstdint>

namespace gaudi::ipc {

enum class key_kind : uint8_t { host = 1, device = 2 };

/** No ports reach it: a card has it imported. */
inline constexpr uint16_t no_module = UINT16_MAX;

struct wire_key {
    uint16_t version; /**< wire_version */
    key_kind kind;
    uint8_t of_message; /**< 1: UCP registered the memory for a message, which
                             it can send without this key, else 0 */
    uint16_t module;    /**< module id of the card whose ports reach it, or
                             no_module */
    uint16_t reserved;  /**< 0 */
    uint32_t pid;       /**< of the owner, for messages to people */
    uint32_t card;      /**< base::pci_address of the card that has the memory;
                             0: host memory */
    place_hashes place; /**< of the owner */
    uint64_t process;   /**< the owner: interface_address::process */
    uint64_t word;      /**< random, of this key */
    uint64_t address;   /**< of the registration */
    uint64_t length;    /**< bytes */

    uint64_t checksum; /**< of all before: see @ref seal_key */

    bool operator==(const wire_key &other) const
    {
        return checksum == other.checksum;
    }
};

/* UCP 1.13 writes the size of a key into a byte; a handle has 64. */
static_assert(sizeof(wire_key) == 64);
static_assert(std::is_trivially_copyable_v<wire_key> &&
              std::has_unique_object_representations_v<wire_key>);

/** Set the checksum, which tells a damaged key from one of elsewhere, which UCP
 *  would do without. */
void seal_key(wire_key &key);

/** Whether it has its checksum. */
[[nodiscard]] bool is_sealed(const wire_key &key);

/** Read a key.
 *  @param buffer  sizeof(wire_key) bytes, of any alignment.
 *  @return UCS_ERR_UNREACHABLE: it is of another machine, user or version;
 *          logged at debug level. UCS_ERR_INVALID_PARAM: not a key; logged as
 *          an error. */
[[nodiscard]] ucs_status_t read_key(const void *buffer, wire_key &key_p);

} // namespace gaudi::ipc
