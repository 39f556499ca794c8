/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a worker address says of an interface: which machine, namespaces and
 * user its process has, and the names by which it is connected to.
 *
 * Fixed width, host byte order: never used beyond one machine. A reader takes
 * it for a claim; who has really connected, the kernel says (socket.h).
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <compare>
#include <cstdint>
#include <string>
#include <type_traits>

namespace gaudi::ipc {

/** Of everything that goes from one process to another. */
inline constexpr uint16_t wire_version = 10;

/** Where a process is. Hashes but for the user: equal by chance, processes fail
 *  to connect. */
struct machine_address {
    uint32_t system;         /**< the running kernel */
    uint32_t box;            /**< base::box_identity() */
    uint32_t net_namespace;  /**< inode: abstract socket names are its own */
    uint32_t uid;            /**< effective, in its user namespace */
    uint16_t version;        /**< wire_version */
    uint16_t user_namespace; /**< of its inode */
    uint32_t folder;         /**< folder_identity(); 0: none */

    bool operator==(const machine_address &) const = default;
};

struct interface_address {
    uint64_t process; /**< util::process_identity() */
    uint32_t number;  /**< of the interface in it; 0: the process alone */
    uint32_t pid;     /**< for messages; of its PID namespace */

    /* clang-tidy 14 sees the 0 that the compiler writes for this.
     * NOLINTNEXTLINE(modernize-use-nullptr) */
    auto operator<=>(const interface_address &) const = default;
};

static_assert((sizeof(machine_address) == 24) &&
              (sizeof(interface_address) == 16));
static_assert(std::is_trivially_copyable_v<machine_address> &&
              std::is_trivially_copyable_v<interface_address>);

/** Of this process; others in a forked child. The first call loads the driver
 *  library. Any thread. */
machine_address own_machine();

/** Hashes of a machine address, for keys: processes reach each other if either
 *  one is equal and not 0. */
struct place_hashes {
    uint32_t machine; /**< of system, box, namespaces, user, version */
    uint32_t folder;  /**< of system, box, folder, version; 0: no folder */

    [[nodiscard]] bool reaches(const place_hashes &other) const
    {
        return (machine == other.machine) ||
               ((folder != 0) && (folder == other.folder));
    }
};
place_hashes hashes_of(const machine_address &machine);

/** Why this process cannot reach another one, for people. */
struct obstacle {
    std::string why; /**< empty: nothing, as far as addresses tell */
    const char *fix; /**< nullptr: nothing can be done */
};
obstacle find_obstacle(const machine_address &peer);

/**
 * Whether this process can connect to an interface. Never waits.
 *
 * Each reason is logged once, with the first process that it is about. It is a
 * warning where UCP has no other transport; and, once, where this process has
 * device memory that another transport has to stage.
 */
[[nodiscard]] bool is_reachable(const machine_address &machine,
                                const interface_address &to);

} // namespace gaudi::ipc
