#include "hlthunk_shim/device.h"

#include "hlthunk_shim/warning.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gaudi::shim {

namespace {

/* Store a number unless a higher one is there. */
void raise(std::atomic<uint64_t> &target, uint64_t value)
{
    uint64_t seen = target.load();
    while ((seen < value) && !target.compare_exchange_weak(seen, value)) {}
}

} // namespace

device::device(const library &lib, int fd, std::string bus_id)
    : lib_(lib), fd_(fd), bus_id_(std::move(bus_id))
{}

device::~device()
{
    if (lib_.hlthunk_close(fd_) != 0) {
        warn("closing card %s failed: %s", bus_id_.c_str(),
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

    std::unique_ptr<device> opened(new device(lib, fd, bus_id));
    int ret = lib.hlthunk_get_hw_ip_info(fd, &opened->info_);
    if (ret != 0) {
        return ret;
    }

    device_p = std::move(opened);
    return 0;
}

/* Make a slot free if its job has ended, whoever owns the job: an owner that
 * does not poll must not keep others from submitting. Gives the job that still
 * runs, else 0. */
uint64_t device::vacate(std::atomic<uint64_t> &slot)
{
    uint64_t holder = slot.load(std::memory_order_acquire);
    if (holder == 0) {
        return 0;
    }
    const int result = ask_driver(holder, 0);
    if (result == 0) {
        return holder;
    }
    if (result == 1) {
        slot.compare_exchange_strong(holder, 0);
        return 0;
    }
    /* Entered before the slot is given up: an owner that finds its slot gone
     * looks for the entry. If it was faster, nobody will. */
    const uint64_t seq = holder;
    std::lock_guard<std::mutex> guard(failed_lock_);
    const bool entered = failed_.emplace(seq, result).second;
    failed_count_.store(static_cast<unsigned>(failed_.size()));
    if (!slot.compare_exchange_strong(holder, 0) && entered) {
        failed_.erase(seq);
        failed_count_.store(static_cast<unsigned>(failed_.size()));
    }
    return 0;
}

/* What keeps so many submissions from going on; 0 when nothing does. */
uint64_t device::find_blocking(uint32_t submissions)
{
    const uint64_t next = last_seq_.load() + 1;
    /* Each refused submission may have used up a number. */
    const uint64_t count = std::min<uint64_t>(
        uint64_t{submissions} + refused_.load(), max_cs_in_flight);
    for (uint64_t seq = next; seq < next + count; ++seq) {
        const uint64_t holder = vacate(running_[seq % max_cs_in_flight]);
        if (holder != 0) {
            return holder;
        }
    }
    return 0;
}

uint64_t device::blocking_job()
{
    return find_blocking(submitting_.load() + 1);
}

int device::submit(hl_cs_chunk *chunks, uint32_t count, uint64_t &seq_p)
{
    /* Threads that are inside get numbers, too. The one that came in last looks
     * at all slots that they and it can get; it counts itself before it reads
     * the last number, and off after its own has been noted. */
    const uint32_t submissions = ++submitting_;
    int ret                    = -EAGAIN;

    if (find_blocking(submissions) == 0) {
        hlthunk_cs_in in{};
        hlthunk_cs_out out{};
        in.chunks_execute     = chunks;
        in.num_chunks_execute = count;

        ret = lib_.hlthunk_command_submission(fd_, &in, &out);
        if (ret == 0) {
            refused_ = 0;
            /* Threads may get their answers in another order than the driver
             * gave. */
            raise(running_[out.seq % max_cs_in_flight], out.seq);
            raise(last_seq_, out.seq);
            seq_p = out.seq;
        } else {
            ++refused_;
        }
    }
    --submitting_;
    return ret;
}

int device::ask_driver(uint64_t seq, uint32_t timeout_us) const
{
    uint32_t status = cs_busy;
    int ret         = lib_.hlthunk_wait_for_cs(fd_, seq, timeout_us, &status);

    /* The status means something only beside 0. */
    if (ret == 0) {
        return (status == cs_completed) ? 1 : 0;
    }
    return (ret == -EBUSY) ? -ENODEV : ret;
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

void device::retire(uint64_t seq)
{
    uint64_t holder = seq;
    if (running_[seq % max_cs_in_flight].compare_exchange_strong(holder, 0)) {
        return; /* nobody has entered how it ended, or will */
    }
    if (failed_count_.load(std::memory_order_acquire) > 0) {
        std::lock_guard<std::mutex> guard(failed_lock_);
        failed_.erase(seq);
        failed_count_.store(static_cast<unsigned>(failed_.size()));
    }
}

} // namespace gaudi::shim
