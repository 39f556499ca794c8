/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An open card, driven by nothing but the driver's functions.
 *
 * Used by tests of the emulator, and by tests above it that need a second
 * opinion about what is in device memory. One thread at a time.
 */
#pragma once

#include "common/emulator.h"
#include "hlthunk_shim/abi/lin_dma.h"

#include <string>
#include <vector>

namespace gaudi::test {

/** How a job ended. */
struct outcome {
    int result;      /**< of hlthunk_wait_for_cs */
    uint32_t status; /**< cs_status */
    bool operator==(const outcome &) const = default;
};

inline constexpr outcome completed{0, shim::cs_completed};
inline constexpr outcome busy{0, shim::cs_busy};
inline constexpr outcome aborted{-5 /* EIO */, shim::cs_aborted};

/** What the driver says of any job when the card is in reset; how that shows
 *  in the status is the library's doing. */
inline outcome in_reset(uint64_t seq)
{
    return {-16 /* EBUSY */, static_cast<uint32_t>(seq)};
}

std::ostream &operator<<(std::ostream &stream, const outcome &value);

class raw_card {
public:
    /** Open a card of the box, also if a test before has left it in reset; look
     *  at @ref fd for how that went.
     *  @param by  The functions that it is driven by. */
    explicit raw_card(unsigned index = 0, const shim::library &by = hl());
    ~raw_card();
    raw_card(const raw_card &)            = delete;
    raw_card &operator=(const raw_card &) = delete;

    [[nodiscard]] int fd() const { return fd_; }

    /** Forget the card: it has been closed. */
    void release() { fd_ = -1; }

    [[nodiscard]] hlthunk_emu_counters counters() const;
    void pause(bool paused) const;

    /* Memory. These throw when the driver refuses; what they make lives until
     * the card is closed. */

    /** @return Handle. */
    [[nodiscard]] uint64_t allocate(uint64_t size) const;
    /** @return Device VA. */
    [[nodiscard]] uint64_t map(uint64_t handle, uint64_t hint = 0) const;
    [[nodiscard]] uint64_t allocate_mapped(uint64_t size) const
    {
        return map(allocate(size));
    }
    [[nodiscard]] uint64_t map_host(void *data, uint64_t size) const;

    /* Command buffers: bytes in a ring that the card sees. */

    /** @return Device VA of the copied bytes. */
    uint64_t add_command_buffer(const void *bytes, size_t size);

    /** A chunk that copies, in the form that its queue wants. */
    hl_cs_chunk copy_chunk(uint32_t queue, uint64_t dst, uint64_t src,
                           uint32_t bytes);
    /** The same with several packets. */
    hl_cs_chunk copy_chunk(uint32_t queue,
                           const std::vector<shim::lin_dma> &packets);
    /** A chunk of anything. */
    hl_cs_chunk raw_chunk(uint32_t queue, const void *bytes, uint32_t size);

    /** As hlthunk_command_submission. */
    [[nodiscard]] int submit(std::vector<hl_cs_chunk> chunks,
                             uint64_t &seq_p) const;

    /** Submit and give the number; throws when the driver refuses. */
    uint64_t start(const std::vector<hl_cs_chunk> &chunks) const;

    /** Look at a job; the default waits for its end. */
    [[nodiscard]] outcome wait(uint64_t seq,
                               uint64_t timeout_us = 20'000'000) const;

    /** Copy and wait. */
    outcome copy(uint32_t queue, uint64_t dst, uint64_t src, uint32_t bytes);

    /** Write to device memory, from any host memory. */
    outcome write(uint64_t dst, const void *src, uint32_t bytes);
    /** Read from device memory, to any host memory. */
    outcome read(void *dst, uint64_t src, uint32_t bytes);

private:
    const shim::library &by_;
    int fd_;
    char *ring_       = nullptr;
    uint64_t ring_va_ = 0;
    size_t next_      = 0;
};

} // namespace gaudi::test
