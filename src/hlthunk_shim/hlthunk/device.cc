#include "hlthunk_shim/hlthunk/device.h"

#include "util/warning.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gaudi::shim {

device::device(const library &lib, int fd, std::string bus_id, bool owned)
    : lib_(lib), fd_(fd), owned_(owned), bus_id_(std::move(bus_id))
{}

device::~device()
{
    if (owned_ && (lib_.hlthunk_close(fd_) != 0)) {
        util::warn("closing card %s failed: %s", bus_id_.c_str(),
                   std::strerror(errno));
    }
}

int device::open(const library &lib, const std::string &bus_id,
                 std::unique_ptr<device> &device_p)
{
    int fd = lib.hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, bus_id.c_str());
    if (fd < 0) {
        return fd;
    }

    std::unique_ptr<device> opened(new device(lib, fd, bus_id, true));
    int ret = lib.hlthunk_get_hw_ip_info(fd, &opened->info_);
    if (ret != 0) {
        return ret;
    }

    device_p = std::move(opened);
    return 0;
}

int device::adopt(const library &lib, int fd, std::unique_ptr<device> &device_p)
{
    char bus_id[bus_id_size] = {};
    int ret = lib.hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id));
    if (ret != 0) {
        return (ret < 0) ? ret : -EINVAL;
    }
    std::unique_ptr<device> adopted(new device(lib, fd, bus_id, false));
    ret = lib.hlthunk_get_hw_ip_info(fd, &adopted->info_);
    if (ret == 0) {
        device_p = std::move(adopted);
    }
    return ret;
}

void device::expect_loss() const
{
    state open = state::open;
    state_.compare_exchange_strong(open, state::closing);
}

/* An answer that tells that the number is no card's any more. */
int device::judge(int result) const
{
    if ((result == -EBADF) || (result == -ENOTTY)) {
        lose();
        return -ENODEV;
    }
    return result;
}

/* Make a slot free if its job has ended, whoever owns the job: an owner that
 * does not poll must not keep others from submitting. Gives the job that still
 * runs, else 0. */
uint64_t device::vacate(slot &place)
{
    uint64_t holder = place.holder.load(std::memory_order_acquire);
    if ((holder == 0) ||
        (holder == place.done.load(std::memory_order_acquire))) {
        return 0;
    }
    const int result = ask_driver(holder, 0);
    if (result == 0) {
        return holder;
    }
    if (result == 1) {
        place.holder.compare_exchange_strong(holder, 0);
        return 0;
    }
    /* Entered before the slot is given up: an owner that finds its slot gone
     * looks for the entry. If it was faster, nobody will. */
    const uint64_t seq = holder;
    std::lock_guard<std::mutex> guard(failed_lock_);
    const bool entered = failed_.emplace(seq, result).second;
    failed_count_.store(static_cast<unsigned>(failed_.size()));
    if (!place.holder.compare_exchange_strong(holder, 0) && entered) {
        failed_.erase(seq);
        failed_count_.store(static_cast<unsigned>(failed_.size()));
    }
    return 0;
}

uint64_t device::blocking_job()
{
    const uint64_t next = last_seq_.load(std::memory_order_acquire) + 1;
    /* Each refused submission may have used up a number. */
    const uint64_t last =
        next + std::min(refused_.load(), max_cs_in_flight - 1);
    for (uint64_t seq = next; seq <= last; ++seq) {
        const uint64_t holder = vacate(slots_[seq % max_cs_in_flight]);
        if (holder != 0) {
            return holder;
        }
    }
    return 0;
}

int device::submit(hl_cs_chunk *chunks, uint32_t count, uint64_t &seq_p)
{
    /* Held until the number is noted. Other threads could otherwise go once
     * around the driver's ring meanwhile, and it would forget the job before
     * anybody here knows of it. */
    const std::lock_guard<util::brief_lock> guard(submit_lock_);
    if (is_lost()) {
        return -ENODEV;
    }
    if (blocking_job() != 0) {
        return -EAGAIN;
    }

    hlthunk_cs_in in{};
    hlthunk_cs_out out{};
    in.chunks_execute     = chunks;
    in.num_chunks_execute = count;

    int ret = judge(lib_.hlthunk_command_submission(fd_, &in, &out));
    if (ret != 0) {
        ++refused_;
        return ret;
    }

    /* Written under the lock alone, but for slots that become free. */
    slots_[out.seq % max_cs_in_flight].holder.store(out.seq,
                                                    std::memory_order_release);
    last_seq_.store(out.seq, std::memory_order_release);
    if (refused_.load(std::memory_order_relaxed) != 0) {
        refused_.store(0, std::memory_order_release);
    }
    seq_p = out.seq;
    return 0;
}

int device::ask_driver(uint64_t seq, uint32_t timeout_us) const
{
    if (state_.load(std::memory_order_relaxed) == state::lost) {
        return -ENODEV;
    }
    uint32_t status = cs_busy;
    int ret = judge(lib_.hlthunk_wait_for_cs(fd_, seq, timeout_us, &status));

    if (ret < 0) {
        return (ret == -EBUSY) ? -ENODEV : ret;
    }
    /* v1.10 gives 0 here, newer libraries the status once more (hlthunk.h of
     * either), so that only what they have written tells them apart. */
    switch (status) {
    case cs_completed:
        return 1;
    case cs_busy:
        return 0;
    case cs_timed_out:
        return -ETIMEDOUT;
    default:
        return -EIO;
    }
}

int device::query(uint64_t seq, uint32_t timeout_us)
{
    if (failed_count_.load(std::memory_order_acquire) > 0) {
        std::lock_guard<std::mutex> guard(failed_lock_);
        auto found = failed_.find(seq);
        if (found != failed_.end()) {
            return found->second;
        }
    }
    const int result = ask_driver(seq, timeout_us);
    if ((result == 1) && (failed_count_.load() > 0)) {
        /* It may have been forgotten between the two questions. */
        std::lock_guard<std::mutex> guard(failed_lock_);
        auto found = failed_.find(seq);
        return (found != failed_.end()) ? found->second : 1;
    }
    return result;
}

void device::retire(uint64_t seq, int result)
{
    slot &place = slots_[seq % max_cs_in_flight];
    if (result == 1) {
        /* Until they see this, others may ask the driver about it; they enter
         * it only if the card is lost by then. */
        place.done.store(seq, std::memory_order_release);
    } else {
        uint64_t holder = seq;
        if (place.holder.compare_exchange_strong(holder, 0)) {
            return; /* nobody has entered how it ended, or will */
        }
    }
    if (failed_count_.load(std::memory_order_acquire) > 0) {
        std::lock_guard<std::mutex> guard(failed_lock_);
        failed_.erase(seq);
        failed_count_.store(static_cast<unsigned>(failed_.size()));
    }
}

} // namespace gaudi::shim
