/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A card driven through libhl-thunk: by command submission, unless a derived
 * class takes its copies elsewhere.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/hlthunk/card_kinds.h"
#include "hlthunk_shim/hlthunk/library.h"
#include "hlthunk_shim/hlthunk/submissions.h"
#include "util/fork_handlers.h"

namespace gaudi::shim {

class device : public card {
public:
    /** As driver::open, with a usable library, which must outlive the device.
     *  Forked children close it. */
    [[nodiscard]] static int open(const library &lib, const std::string &bus_id,
                                  std::unique_ptr<device> &device_p);

    /** As driver::adopt. */
    [[nodiscard]] static int adopt(const library &lib, int fd,
                                   std::unique_ptr<device> &device_p);

    /** The bus id of a card that is open.
     *  @return 0 or -errno. */
    [[nodiscard]] static int find_bus_id(const library &lib, int fd,
                                         std::string &bus_id_p);

    ~device() override;

    [[nodiscard]] const library &lib() const { return lib_; }

    bool is_of(int kind) const override;
    int allocate(uint64_t size, uint64_t wished,
                 allocation &allocation_p) const override;
    int register_host(void *host, uint64_t size,
                      registration &registration_p) const override;
    int import_dmabuf(int dmabuf, uint64_t size,
                      registration &registration_p) const override;
    int export_dmabuf(uint64_t address, uint64_t offset, uint64_t size,
                      int &fd_p) const override;
    int64_t dmabuf_size(int dmabuf) const override;
    int unmap(uint64_t address) const override;
    int free_memory(uint64_t handle) const override;
    std::optional<uint64_t> allocated_bytes() const override;
    int make_queue(dma_direction direction, const dma_queue_options &options,
                   std::unique_ptr<dma_queue> &queue_p) override;
    int query(ticket of, uint32_t timeout_us) override
    {
        return submissions_.query(of, timeout_us);
    }
    ticket blocking_ticket() override { return submissions_.blocking_ticket(); }

    /** Where its queues submit to. */
    [[nodiscard]] submissions &jobs() { return submissions_; }

protected:
    /** @param owned  Close the descriptor at the end. */
    device(const library &lib, int fd, std::string bus_id, bool owned);

    /** Ask the card what it is, before anything else. @return 0 or -errno. */
    [[nodiscard]] int find_out();

    const library &lib_;

private:
    [[nodiscard]] bool refuses_own_export() const;

    const bool owned_;
    const card_kind *kind_ = nullptr;
    std::array<queue_range, dma_directions> queues_{};
    util::closed_in_children closed_in_children_; /* unless adopted */
    submissions submissions_;
};

} // namespace gaudi::shim
