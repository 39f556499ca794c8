/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The key as it travels: what mkey_pack writes and rkey_unpack reads.
 *
 * Fixed width, in host byte order, versioned by the machine's address that it
 * starts with. Whoever reads one takes it for a claim: read_key checks what can
 * be checked without asking anybody.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/process_id.h"

#include <cstdint>

namespace gaudi::ipc {

enum class key_kind : uint8_t { host = 1, device = 2 };

/** No ports reach it: a card has it imported. */
inline constexpr uint16_t no_module = UINT16_MAX;

struct wire_key {
    machine_address machine;
    uint32_t card; /**< base::pci_address of the card that has the memory; 0:
                        host memory */
    process_id process;
    file_ref page;    /**< the shared page of the process */
    uint64_t address; /**< of the registration */
    uint64_t length;  /**< bytes */
    uint64_t stamp;   /**< of the key; never 0 */
    uint32_t cell;
    key_kind kind;
    uint8_t of_message; /**< 1: UCP registered the memory for a message, which
                             it can send without this key, else 0 */
    uint16_t module;    /**< module id of the card whose ports reach it, or
                             no_module */

    uint64_t checksum; /**< of all before: see @ref seal_key */

    bool operator==(const wire_key &) const = default;
};

static_assert(sizeof(wire_key) == 112);
/* UCP 1.13 writes the size of a key into a byte. */
static_assert(sizeof(wire_key) <= UINT8_MAX);
static_assert(std::is_trivially_copyable_v<wire_key> &&
              std::has_unique_object_representations_v<wire_key>);

/** Fill in what tells a key from one that was damaged on its way: that one is
 *  no key of elsewhere, which UCP would do without. */
void seal_key(wire_key &key);

/** Read a key.
 *  @param buffer  sizeof(wire_key) bytes, of any alignment.
 *  @return UCS_ERR_UNREACHABLE: it is of another machine, user or version; said
 *          at debug level. UCS_ERR_INVALID_PARAM: nobody would have written
 *          this; logged as an error. */
[[nodiscard]] ucs_status_t read_key(const void *buffer, wire_key &key_p);

} // namespace gaudi::ipc
