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
#include "hlthunk_shim/synapse/stream_card.h"

#include <functional>

namespace gaudi::shim {

class synapse_card final : public stream_card {
public:
    /**
     * @param on       The same card as the driver has it, adopted.
     * @param map_application_memory  Whether host memory of the application may
     *                 be mapped by SynapseAI; else it refuses registrations.
     * @param ending   Called at the end of the card.
     */
    synapse_card(std::shared_ptr<synapse_session> session,
                 std::unique_ptr<device> on, bool map_application_memory,
                 std::function<void()> ending = {});
    ~synapse_card() override;

    bool is_of(int kind) const override { return on_->is_of(kind); }
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
    int64_t dmabuf_size(int dmabuf) const override
    {
        return on_->dmabuf_size(dmabuf);
    }
    int unmap(uint64_t address) const override;
    int free_memory(uint64_t handle) const override;
    std::optional<uint64_t> allocated_bytes() const override
    {
        return on_->allocated_bytes();
    }
    std::optional<memory_block> application_block() const override;
    int make_queue(dma_direction direction, const dma_queue_options &options,
                   std::unique_ptr<dma_queue> &queue_p) override;
    int query(ticket of, uint32_t timeout_us) override;
    ticket blocking_ticket() override { return ticket::none; }

    int find_direction(uint64_t dst, uint64_t src, uint64_t length,
                       synDmaDir &direction_p) const override;
    int judge(synStatus status) const override;
    int look(const job_event &event) const override;
    bool is_broken() const override;
    void give_up() const override;
    void end() const override;

private:
    [[nodiscard]] int map_host(void *host, uint64_t size,
                               registration &registration_p) const;
    [[nodiscard]] bool reaches(uint64_t start, uint64_t length) const;

    const std::unique_ptr<device> on_;
    const bool map_application_memory_;
    const std::function<void()> ending_;
    mutable std::mutex mapping_lock_; /* one of host_ at a time; held across
                                         SynapseAI's calls for that */
    mutable mapped_ranges host_;
    mutable mapped_ranges imports_;
};

} // namespace gaudi::shim
