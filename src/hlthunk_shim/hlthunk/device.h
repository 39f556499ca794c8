/**
 * An open card.
 *
 * Has the compute file descriptor, its own or the application's, and the count
 * of submissions in flight on it. Thread-safe; submissions go to the driver one
 * at a time, as it takes them one at a time anyway. Memory handles, mappings
 * and queues refer to their device and must go first.
 */
#pragma once

#include "hlthunk_shim/hlthunk/library.h"
#include "util/brief_lock.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace gaudi::shim {

class device {
public:
    /**
     * Open the compute node of a card.
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
     * @param fd  The node; a descriptor of something else is refused.
     * @return As @ref open.
     */
    [[nodiscard]] static int adopt(const library &lib, int fd,
                                   std::unique_ptr<device> &device_p);

    ~device();
    device(const device &)            = delete;
    device &operator=(const device &) = delete;

    [[nodiscard]] const library &lib() const { return lib_; }
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] const std::string &bus_id() const { return bus_id_; }

    /**
     * The application is about to close the descriptor: nothing new is
     * submitted, and nothing given back, since all goes with it. Jobs in flight
     * can be asked about until @ref lose.
     */
    void expect_loss() const;

    /** The descriptor is closed. The driver is not called with it any more, and
     *  every job has ended with -ENODEV. Found out from the driver's answers,
     *  too. */
    void lose() const { state_.store(state::lost); }

    /** Whether one of the above was said. */
    [[nodiscard]] bool is_lost() const
    {
        return state_.load(std::memory_order_relaxed) != state::open;
    }
    [[nodiscard]] const hlthunk_hw_ip_info &hw_info() const { return info_; }

    /** The NUMA node that the card sits on; what is pinned for the card is
     *  placed there. Unknown unless it was set, right after opening. */
    [[nodiscard]] std::optional<unsigned> numa_node() const
    {
        return numa_node_;
    }
    void set_numa_node(std::optional<unsigned> node) { numa_node_ = node; }

    /**
     * Submit command buffers of one queue as one job.
     *
     * @return 0; -EAGAIN when the driver's limit of jobs in flight is reached
     *         (the driver is not called then, it would spin), see
     *         @ref blocking_job; else -errno.
     */
    [[nodiscard]] int submit(hl_cs_chunk *chunks, uint32_t count,
                             uint64_t &seq_p);

    /**
     * A job that keeps @ref submit from going on.
     *
     * Whoever got -EAGAIN can sleep on it with @ref query, on any thread, and
     * try again when that says anything but 0. It may be a job of any queue of
     * the card, and its owner may retire it meanwhile.
     *
     * @return Its sequence number; 0 when a submission would go through now.
     */
    [[nodiscard]] uint64_t blocking_job();

    /**
     * Look at a job, waiting up to a time.
     *
     * Any thread may ask about any job of the card, several at a time about one
     * job too, while others submit, query and retire. How a failed job ended is
     * kept until its owner retires it, however many newer ones there are;
     * afterwards it may read as done.
     *
     * @param seq         Number that @ref submit gave.
     * @param timeout_us  0 only polls.
     * @return 1 done, 0 still running, or -errno as the job ended: -EIO
     * aborted, -ETIMEDOUT lost, -ENODEV the device is in reset or gone.
     */
    [[nodiscard]] int query(uint64_t seq, uint32_t timeout_us);

    /** Forget a job that has ended. Every job needs this once.
     *
     *  @param result  What @ref query said of it, not 0. */
    void retire(uint64_t seq, int result);

private:
    enum class state { open, closing, lost };

    /* Which jobs have a slot of the driver's ring, by sequence number. */
    struct slot {
        std::atomic<uint64_t> holder{0}; /* 0 for none known to run */
        std::atomic<uint64_t> done{0};   /* the last that its owner saw done */
    };

    device(const library &lib, int fd, std::string bus_id, bool owned);
    int judge(int result) const;
    int ask_driver(uint64_t seq, uint32_t timeout_us) const;
    uint64_t vacate(slot &place);

    const library &lib_;
    int fd_;
    const bool owned_;
    std::string bus_id_;
    mutable std::atomic<state> state_{state::open};
    hlthunk_hw_ip_info info_{};
    std::optional<unsigned> numa_node_;
    util::brief_lock submit_lock_; /* outside failed_lock_ */
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
