/**
 * A card driven through libhl-thunk, by command submission.
 *
 * Counts the submissions in flight: they go to the driver one at a time, as it
 * takes them one at a time anyway. Their sequence numbers are the tickets.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/hlthunk/card_kinds.h"
#include "hlthunk_shim/hlthunk/library.h"
#include "util/brief_lock.h"
#include "util/fork_handlers.h"

#include <map>
#include <mutex>

namespace gaudi::shim {

class device final : public card {
public:
    /**
     * Open the compute node of a card; forked children close it.
     *
     * @param lib       Usable library; must outlive the device.
     * @param bus_id    "dddd:bb:dd.f" of the card.
     * @param device_p  Filled on success only.
     * @return 0, or -errno: -EBUSY when somebody has the card open, -EAGAIN
     *         during a reset, -EINVAL for an unknown bus id.
     */
    [[nodiscard]] static int open(const library &lib, const std::string &bus_id,
                                  std::unique_ptr<device> &device_p);

    /**
     * Use a compute node that the application has open, and never close it.
     *
     * @param fd  Its descriptor; one of something else is refused.
     * @return As @ref open.
     */
    [[nodiscard]] static int adopt(const library &lib, int fd,
                                   std::unique_ptr<device> &device_p);

    ~device() override;

    [[nodiscard]] const library &lib() const { return lib_; }

    int application_name() const override;
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
    int query(ticket of, uint32_t timeout_us) override;
    ticket blocking_ticket() override;

    /**
     * Submit command buffers of one queue as one job.
     *
     * @return 0; -EAGAIN when the driver's limit of jobs in flight is reached
     *         (the driver is not called then, it would spin), see
     *         @ref blocking_ticket; else -errno.
     */
    [[nodiscard]] int submit(hl_cs_chunk *chunks, uint32_t count,
                             ticket &ticket_p);

    /** Forget a job that has ended. Every job needs this once.
     *
     *  @param result  What @ref query said of it, not 0. */
    void retire(ticket of, int result);

private:
    /* Which jobs have a slot of the driver's ring, by sequence number. */
    struct slot {
        std::atomic<uint64_t> holder{0}; /* 0 for none known to run */
        std::atomic<uint64_t> done{0};   /* the last that its owner saw done */
    };

    device(const library &lib, int fd, std::string bus_id, bool owned);
    [[nodiscard]] int describe();
    int judge(int result) const;
    int ask_driver(uint64_t seq, uint32_t timeout_us) const;
    uint64_t vacate(slot &place);

    const library &lib_;
    const bool owned_;
    const card_kind *kind_ = nullptr;
    util::closed_in_children closed_in_children_; /* unless adopted */
    util::brief_lock submit_lock_;                /* outside failed_lock_ */
    std::atomic<uint64_t> last_seq_{0};
    std::atomic<uint32_t> refused_{0}; /* since the last job */
    /* The driver's own ring, and its rule for "full": a job has the slot of the
     * six low bits of its number. */
    slot slots_[max_cs_in_flight];
    /* Jobs that failed and lost their slot before their owner asked: the driver
     * calls a job completed once 64 newer ones exist. */
    std::atomic<unsigned> failed_count_{0};
    std::mutex failed_lock_;
    std::map<uint64_t, int> failed_;
};

} // namespace gaudi::shim
