/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One card of the software Gaudi, open twice over: by UCT through the module,
 * and a second card by the bare shim, for references.
 */
#pragma once

#include "hlthunk_shim/discovery/driver.h"
#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/memory.h"
#include "transport.h"

#include <memory>

namespace gaudi::bench {

/** Load the module into this process, with this card, before UCX is used. */
void load_module(const char *card = "0");

/** Device memory, as gaudi_copy's memory domain allocates it; never freed. */
class device_allocation {
public:
    /** Ends the program when there is none. */
    device_allocation(uct_md_h md, size_t size);

    [[nodiscard]] void *data() const { return memory_.address; }

private:
    uct_allocated_memory_t memory_{};
};

/** Host memory that is there, registered or not. */
class host_buffer {
public:
    /** Ends the program when it cannot be had. */
    host_buffer(size_t size, bool registered);
    ~host_buffer();
    host_buffer(const host_buffer &)            = delete;
    host_buffer &operator=(const host_buffer &) = delete;

    [[nodiscard]] char *data() const { return data_; }

private:
    char *data_;
    size_t size_;
    uct_mem_h memh_ = nullptr;
};

/** The transport, on card 0, and device memory there. */
class session : public transport {
public:
    /** The one of this program; ends the program when it cannot be opened. */
    static session &instance();

    /** Start a zcopy and call progress until it has completed.
     *  @param start  uct_ep_put_zcopy or uct_ep_get_zcopy. */
    void zcopy(uct_ep_put_zcopy_func_t start, void *local, size_t size)
    {
        begin_zcopy(start, local, size, 0);
        complete();
    }

    /** Start one only, at an offset in the device memory. */
    void begin_zcopy(uct_ep_put_zcopy_func_t start, void *local, size_t size,
                     uint64_t offset)
    {
        transport::begin_zcopy(start, ep, local, size, remote() + offset,
                               UCT_INVALID_RKEY);
    }
    using transport::complete;

    [[nodiscard]] uint64_t remote() const
    {
        return reinterpret_cast<uintptr_t>(device_.data());
    }

    /** Bytes of device memory. */
    static constexpr size_t max_size = 64 << 20;

private:
    session();

    device_allocation device_{md, max_size};
};

/** The bare shim, on card 1. */
class bare_card {
public:
    static bare_card &instance();

    /** Submit a copy of host memory to the card, and poll until it has ended.
     */
    void submit_and_poll(size_t size);

private:
    bare_card();

    shim::driver driver_;
    std::unique_ptr<shim::card> card_;
    shim::allocation memory_;
    shim::pinned_buffer host_;
    std::unique_ptr<shim::dma_queue> queue_;
};

} // namespace gaudi::bench
