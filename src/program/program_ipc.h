/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory that a program exports to others, and what it has opened of theirs:
 * the handles of ucx_gaudi.h, which are keys.
 *
 * What was opened gets an address that no card and no host memory has. Only
 * copies of ucx_gaudi.h know it: they look here, and have the engine move the
 * bytes over whatever way there is, as gaudi_ipc's puts and gets.
 *
 * Threads: any, in a call of program_memory. The lock is held while memory is
 * exported, not while other processes are asked for something.
 */
#pragma once

#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/ipc/exports.h"
#include "uct/gaudi/ipc/remote_key.h"
#include "util/process.h"
#include "util/range_allocator.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace gaudi {

/** Memory of another process, as it was opened. */
struct opened_memory {
    explicit opened_memory(ipc::remote_key &of) : key(&of) {}
    ~opened_memory() { key->drop(); }
    opened_memory(const opened_memory &)            = delete;
    opened_memory &operator=(const opened_memory &) = delete;

    /** The process, as an engine reaches it: the engine has a link to it from
     *  then on.
     *  @return UCS_ERR_ENDPOINT_TIMEOUT: it has ended. As link::open. */
    [[nodiscard]] ucs_status_t find_peer(base::transfer_engine &engine,
                                         base::remote_peer *&peer_p) const;

    ipc::remote_key *const key;
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
                                             ipc::wire_key &handle_p);
    [[nodiscard]] ucs_status_t withdraw(void *address, size_t length);
    [[nodiscard]] ucs_status_t open(std::shared_ptr<opened_memory> opened);
    [[nodiscard]] ucs_status_t close(uint64_t address);

    /** Forget what was exported and is freed. */
    void forget_freed();

    /** What was opened and has all of a range; nullptr: nothing. */
    [[nodiscard]] opened_ptr find(const void *address, size_t length);

private:
    struct exported {
        std::unique_ptr<ipc::exported_memory> memory;
        unsigned users = 0; /* not yet withdrawn */
    };

    void forget_freed_locked();

    std::mutex lock_;
    std::map<std::pair<uint64_t, size_t>, exported> exports_;
    std::map<uint64_t, std::shared_ptr<opened_memory>> opened_;
    util::range_allocator addresses_;
};

} // namespace gaudi
