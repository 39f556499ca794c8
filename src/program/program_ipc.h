/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory that a program exports to others, and what it has opened of theirs:
 * the handles of ucx_gaudi.h.
 *
 * What was opened gets an address that no card and no host memory has. Only
 * copies of ucx_gaudi.h know it: they look here, and have the engine move the
 * bytes over whatever way there is, as gaudi_ipc's puts and gets.
 *
 * Threads: any, in a call of program_memory. The lock is held while memory is
 * exported, not while other processes are asked for something.
 */
#pragma once

#include "uct/gaudi/base/transfer/remote_memory.h"
#include "uct/gaudi/ipc/sharing/exports.h"
#include "uct/gaudi/ipc/sharing/handle.h"
#include "uct/gaudi/ipc/sharing/remote_key.h"
#include "util/process.h"
#include "util/range_allocator.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace gaudi {

/** Memory of another process, as it was opened. */
struct opened_memory {
    opened_memory(ipc::remote_key &of, uint64_t first, size_t bytes)
        : key(&of), there(first), length(bytes)
    {}
    ~opened_memory() { key->drop(); }
    opened_memory(const opened_memory &)            = delete;
    opened_memory &operator=(const opened_memory &) = delete;

    ipc::remote_key *const key;
    const uint64_t there; /* address in its process */
    const size_t length;
    uint64_t here = 0;
};

using opened_ptr = std::shared_ptr<const opened_memory>;

class program_ipc {
public:
    static program_ipc &instance()
    {
        return util::of_this_process<program_ipc>();
    }

    program_ipc();

    /* What the functions of ucx_gaudi.h do. */
    [[nodiscard]] ucs_status_t export_memory(void *address, size_t length,
                                             ipc::handle_image &handle_p);
    [[nodiscard]] ucs_status_t withdraw(void *address, size_t length);
    [[nodiscard]] ucs_status_t open(const ipc::wire_key &wire,
                                    opened_ptr &opened_p);
    [[nodiscard]] ucs_status_t close(uint64_t address);

    /** Forget what was exported and is freed. */
    void forget_freed();

    /** What was opened and has all of a range; nullptr: nothing. */
    [[nodiscard]] opened_ptr find(const void *address, size_t length);

private:
    struct exported {
        std::unique_ptr<ipc::exported_memory> memory;
        ipc::offered_key key;
        unsigned users = 0; /* not yet withdrawn */
    };

    void forget_freed_locked();

    std::mutex lock_;
    std::map<std::pair<uint64_t, size_t>, exported> exports_;
    std::map<uint64_t, std::shared_ptr<opened_memory>> opened_;
    util::range_allocator addresses_;
};

} // namespace gaudi
