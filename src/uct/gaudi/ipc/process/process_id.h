/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How processes of one machine name themselves, each other, and what they have
 * open: the fixed-width structs in addresses, keys and shared memory.
 *
 * All are in host byte order: they never leave the machine. A process that
 * reads one from another process takes it for a claim, until it has compared it
 * with what the kernel says.
 */
#pragma once

#include "uct/gaudi/ipc/process/shared_folder.h"
#include "util/other_process.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gaudi::ipc {

/** Of everything that one process sends to another. */
inline constexpr uint16_t wire_version = 9;

/** Where a process is. Processes that differ in any of it cannot use each
 *  other's memory, but for namespaces and user where they have a folder in
 *  common. Of system, box and folder it is a hash: whoever has the same by
 *  chance has other processes. */
struct machine_address {
    uint32_t system;         /**< the running kernel */
    uint32_t box;            /**< base::box_identity() */
    uint32_t pid_namespace;  /**< inode of the namespace */
    uint32_t net_namespace;  /**< the same */
    uint32_t uid;            /**< effective user, in its user namespace */
    uint16_t version;        /**< wire_version */
    uint16_t user_namespace; /**< hash of the namespace's inode */
    uint32_t folder;         /**< shared_folder::identity() */

    bool operator==(const machine_address &) const = default;
};

/** Which process it is. No two have ever had the same. */
struct process_id {
    uint64_t nonce;         /**< util::process_identity() */
    uint64_t start_time;    /**< clock ticks since boot: survives pid reuse */
    uint32_t pid;           /**< in its PID namespace, */
    uint32_t pid_namespace; /**< which has this inode */

    /* clang-tidy 14 sees the 0 that the compiler writes for this.
     * NOLINTNEXTLINE(modernize-use-nullptr) */
    auto operator<=>(const process_id &) const = default;

    /** Tells it from others, to processes of this PID namespace. */
    [[nodiscard]] constexpr uint64_t word_for(uint32_t readers) const
    {
        return (readers == pid_namespace) ? util::process_word(pid, start_time)
                                          : folder_word(nonce);
    }
};

/** What another process hands out. Random: who knows it was told by somebody
 *  who may have the files. */
struct file_ref {
    uint64_t name;
    uint64_t secret;

    /* NOLINTNEXTLINE(modernize-use-nullptr): as above */
    auto operator<=>(const file_ref &) const = default;
};

static_assert((sizeof(machine_address) == 28) && (sizeof(process_id) == 24) &&
              (sizeof(file_ref) == 16));
static_assert(std::is_trivially_copyable_v<machine_address> &&
              std::is_trivially_copyable_v<process_id> &&
              std::is_trivially_copyable_v<file_ref>);

/** Of this process; others in a forked child. Any thread. The first call loads
 *  the driver library. */
machine_address own_machine();
process_id own_process();

} // namespace gaudi::ipc
