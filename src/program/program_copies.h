/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies of ucx_gaudi.h, as its functions and its streams make them.
 *
 * Threads: any.
 */
#pragma once

#include "program/program_ipc.h"
#include "uct/gaudi/base/transfer/operation.h"
#include "uct/gaudi/base/transfer/remote_memory.h"
#include "uct/gaudi/base/ucx/ucx.h"

#include <chrono>
#include <cstddef>
#include <string>

namespace gaudi {

/** Whether a copy can be tried.
 *  @param function  Who is asked for it.
 *  @return UCS_OK, or an error, which was logged. */
[[nodiscard]] ucs_status_t check_copy(const char *function, const void *dst,
                                      const void *src, size_t length);

/** The sides of a copy, of which one may be memory of another process: that
 *  stays open meanwhile. */
struct copy_sides {
    copy_sides(void *to_address, const void *from_address, size_t bytes);

    /** Both are memory of this process. */
    [[nodiscard]] bool is_within() const
    {
        return (to == nullptr) && (from == nullptr);
    }

    /** Have an engine reach the processes. @return As opened_memory::find_peer.
     */
    [[nodiscard]] ucs_status_t connect(base::transfer_engine &engine);

    /** Log how a copy between processes has ended, and when. */
    void log_end(ucs_status_t status) const;

    opened_ptr to;
    opened_ptr from;
    base::held_registration to_host; /* registered by the program, or nullptr */
    base::held_registration from_host;
    base::side dst;
    base::side src;
    size_t length;
    std::chrono::steady_clock::time_point begun;

private:
    [[nodiscard]] std::string text() const;
};

/** Whether a card makes a copy, and reaches all of its memory: host memory that
 *  was registered. */
[[nodiscard]] bool is_of_cards(const void *dst, const void *src, size_t length);

/** Make one that was checked, as ucx_gaudi_mem_copy does. */
[[nodiscard]] ucs_status_t copy_memory(void *dst, const void *src,
                                       size_t length) noexcept;

} // namespace gaudi
