/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A card that SynapseAI has acquired in this process, driven through it.
 *
 * SCAL, below SynapseAI, runs the card's DMA engines by processors of the card:
 * command submission beside it is outside of any contract, and Gaudi3 has no
 * other way. What goes by the card's descriptor alone (import, export, facts)
 * goes to the driver.
 *
 * Addresses: host memory has its pointer, since SynapseAI translates the host's
 * end of a copy by what was mapped with it. It takes the device's end as it is,
 * and a wrong one resets the card and ends the process; so both ends are looked
 * at before a copy is submitted. An import is an address of the card's, which
 * to SynapseAI is a device's end; SCAL copies between two of these with a PDMA
 * engine, which reaches it (scal/configs/gaudi2 and gaudi3, default.json,
 * "pdma_device2device", in HabanaAI/Intel_Gaudi3_Software). That was not run on
 * hardware.
 *
 * Nothing here waits inside SynapseAI: a framework cannot release its device
 * while a thread is in there, and takes that for the end of the world.
 */
#pragma once

#include "hlthunk_shim/hlthunk/device.h"
#include "hlthunk_shim/synapse/mapped_ranges.h"
#include "hlthunk_shim/synapse/session.h"

#include <chrono>
#include <functional>

namespace gaudi::shim {

/** When to ask whether a card is broken, and when to give it up. */
class patience {
public:
    using clock = std::chrono::steady_clock;

    /** How often a card that does not end a job is asked how it is. */
    static constexpr auto doubt = std::chrono::milliseconds(100);
    /** Twice the time after which the driver resets a card for a job of its
     *  own; SCAL's it does not watch. */
    static constexpr auto longest = std::chrono::seconds(60);

    /** A job was seen to run. @return Whether it is time to ask. */
    [[nodiscard]] bool is_over()
    {
        const clock::time_point now = clock::now();
        if (asked_ == clock::time_point()) {
            since_ = asked_ = now;
        } else if (now - asked_ >= doubt) {
            asked_ = now;
            return true;
        }
        return false;
    }

    /** Whether the job has been seen to run for too long. */
    [[nodiscard]] bool is_exhausted() const
    {
        return asked_ - since_ > longest;
    }

    /** One has ended. */
    void restore() { asked_ = {}; }

private:
    clock::time_point since_;
    clock::time_point asked_;
};

class synapse_card final : public device {
public:
    /**
     * Use the card of a session.
     *
     * @param lib      Must outlive it.
     * @param map_application_memory  Whether host memory of the application may
     *                 be mapped by SynapseAI; else it refuses registrations.
     * @param ending   Called at the end of the card.
     * @param card_p   Filled on success only.
     * @return 0 or -errno.
     */
    [[nodiscard]] static int make(const library &lib,
                                  std::shared_ptr<synapse_session> session,
                                  bool map_application_memory,
                                  std::function<void()> ending,
                                  std::unique_ptr<card> &card_p);
    ~synapse_card() override;

    int allocate(uint64_t size, uint64_t wished,
                 allocation &allocation_p) const override;
    int register_host(void *host, uint64_t size,
                      registration &registration_p) const override;
    int register_staging(void *host, uint64_t size,
                         registration &registration_p) const override;
    int import_dmabuf(int dmabuf, uint64_t size,
                      registration &registration_p) const override;
    int export_dmabuf(uint64_t address, uint64_t offset, uint64_t size,
                      int &fd_p) const override;
    int unmap(uint64_t address) const override;
    int free_memory(uint64_t handle) const override;
    std::optional<memory_block> application_block() const override;
    int make_queue(dma_direction direction, const dma_queue_options &options,
                   std::unique_ptr<dma_queue> &queue_p) override;
    int query(ticket of, uint32_t timeout_us) override;
    ticket blocking_ticket() override { return ticket::none; }

    /* --- for its queues ----------------------------------------------------*/

    [[nodiscard]] synapse_session &session() const { return *session_; }

    /**
     * How SynapseAI calls a copy.
     *
     * @return 0; -EFAULT for an end that the card does not reach, -EINVAL for
     *         two that are in host memory.
     */
    [[nodiscard]] int find_direction(uint64_t dst, uint64_t src,
                                     uint64_t length,
                                     synDmaDir &direction_p) const;

    /** HCL has them, unless it is told to leave them. */
    [[nodiscard]] const char *why_no_ports() const override;

    /** What a status of a call for a copy is.
     *  @return 0 or -errno; -ENODEV after the end of the card, which it may
     *          tell. */
    [[nodiscard]] int judge(synStatus status) const;

    /** Look at a job. @return As @ref query, without waiting. */
    [[nodiscard]] int look(const job_event &event) const;

    /** Whether a job that runs will never end: ask now and then. */
    [[nodiscard]] bool is_hopeless(patience &with) const;

    /** Nothing is asked of SynapseAI, or given back, any more: it all went with
     *  the device, or the next call would not come back. */
    void end() const;

private:
    synapse_card(const library &lib, std::shared_ptr<synapse_session> session,
                 const std::string &bus_id, bool map_application_memory);

    [[nodiscard]] int map_host(void *host, uint64_t size,
                               registration &registration_p) const;
    [[nodiscard]] bool reaches(uint64_t start, uint64_t length) const;
    [[nodiscard]] bool is_broken() const;

    const std::shared_ptr<synapse_session> session_;
    const bool map_application_memory_;
    std::function<void()> ending_;
    mutable std::mutex mapping_lock_; /* one of host_ at a time; held across
                                         SynapseAI's calls for that */
    mutable mapped_ranges host_;
    mutable mapped_ranges imports_;
};

/** Sleep, longer each time. @param pause_us  Of the next time. */
void sleep_longer(uint64_t &pause_us);

} // namespace gaudi::shim
