/**
 * How processes of one machine name themselves, each other, and what they have
 * open: the fixed-width structs in addresses, keys and shared memory.
 *
 * All are in host byte order: they never leave the machine. A process that
 * reads one from another process takes it for a claim, until it has compared it
 * with what the kernel says.
 */
#pragma once

#include "util/other_process.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gaudi::ipc {

/** Of everything that one process sends to another. */
inline constexpr uint16_t wire_version = 3;

/** Where a process is. Processes that differ in any of it, but for the network
 *  namespace, cannot use each other's memory. Of the first two it is a hash:
 *  whoever has the same by chance has other processes. */
struct machine_address {
    uint32_t system;         /**< the running kernel */
    uint32_t box;            /**< base::box_identity() */
    uint32_t pid_namespace;  /**< inode of the namespace */
    uint32_t net_namespace;  /**< the same; differs from container to container
                                  where cards do not */
    uint32_t uid;            /**< effective user, in its user namespace */
    uint16_t version;        /**< wire_version */
    uint16_t user_namespace; /**< hash of the namespace's inode */

    bool operator==(const machine_address &) const = default;
};

/** Which process it is. No two have ever had the same. */
struct process_id {
    uint64_t nonce;      /**< util::process_identity() */
    uint64_t start_time; /**< clock ticks since boot: survives pid reuse */
    uint32_t pid;        /**< in its PID namespace */
    uint32_t reserved;   /**< 0 */

    /* clang-tidy 14 sees the 0 that the compiler writes for this.
     * NOLINTNEXTLINE(modernize-use-nullptr) */
    auto operator<=>(const process_id &) const = default;

    /** Tells it from others of its PID namespace. */
    [[nodiscard]] constexpr uint64_t word() const
    {
        return util::process_word(pid, start_time);
    }
};

/** What a file of another process is for. */
enum class file_kind : uint32_t {
    mailbox     = 1,
    signal      = 2,
    shared_page = 3,
    dma_buf     = 4,
    withdrawal  = 5, /**< no file: see file_service::tell_withdrawal */
};

/** Random bits. Who has them was told of a file by somebody who may have it:
 *  the rest of a reference can be guessed. */
struct file_token {
    uint64_t high;
    uint64_t low;

    bool operator==(const file_token &) const = default;
};

/** A file descriptor of another process. */
struct file_ref {
    uint64_t device; /**< st_dev and */
    uint64_t inode;  /**< st_ino of the file behind it */
    uint32_t fd;     /**< its number there */
    file_kind kind;
    file_token token; /**< for its file service, not for the kernel */

    bool operator==(const file_ref &) const = default;
};

static_assert((sizeof(machine_address) == 24) && (sizeof(process_id) == 24) &&
              (sizeof(file_ref) == 40));
static_assert(std::is_trivially_copyable_v<machine_address> &&
              std::is_trivially_copyable_v<process_id> &&
              std::is_trivially_copyable_v<file_ref>);

/** Of this process; others in a forked child. Any thread. The first call loads
 *  the driver library and starts to count forks. */
machine_address own_machine();
process_id own_process();

/** Describe an open file of this process, with a token of its own each time.
 *  @return false when the descriptor is not open. */
bool describe_file(int fd, file_kind kind, file_ref &file_p);

/** Whether this descriptor stands for that file now. */
bool is_file(int fd, const file_ref &file);

} // namespace gaudi::ipc
