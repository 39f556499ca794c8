#include "hlthunk_shim/device.h"

#include "hlthunk_shim/warning.h"

#include <cerrno>
#include <cstring>

namespace gaudi::shim {

device::device(const library &lib, int fd, std::string bus_id)
    : lib_(lib), fd_(fd), bus_id_(std::move(bus_id))
{
}

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

int device::submit(hl_cs_chunk *chunks, uint32_t count, uint64_t &seq_p)
{
    uint64_t next = last_seq_.load(std::memory_order_relaxed) + 1;
    if (in_flight_[next % max_cs_in_flight].load(std::memory_order_acquire)) {
        return -EAGAIN;
    }

    hlthunk_cs_in in{};
    hlthunk_cs_out out{};
    in.chunks_execute     = chunks;
    in.num_chunks_execute = count;

    int ret = lib_.hlthunk_command_submission(fd_, &in, &out);
    if (ret != 0) {
        return ret;
    }

    in_flight_[out.seq % max_cs_in_flight].store(true,
                                                 std::memory_order_relaxed);
    /* Threads may get their answers in another order than the driver gave. */
    uint64_t seen = last_seq_.load(std::memory_order_relaxed);
    while ((seen < out.seq) &&
           !last_seq_.compare_exchange_weak(seen, out.seq,
                                            std::memory_order_relaxed)) {
    }
    seq_p = out.seq;
    return 0;
}

int device::query(uint64_t seq, uint32_t timeout_us) const
{
    uint32_t status = cs_busy;
    int ret         = lib_.hlthunk_wait_for_cs(fd_, seq, timeout_us, &status);

    /* The status means something only beside one of these results. */
    switch (ret) {
    case 0:
        return (status == cs_completed) ? 1 : 0;
    case -EIO:
    case -ETIMEDOUT:
        return ret;
    case -EBUSY:
    case -ENODEV:
        return -ENODEV;
    default:
        return ret;
    }
}

void device::retire(uint64_t seq)
{
    in_flight_[seq % max_cs_in_flight].store(false, std::memory_order_release);
}

} // namespace gaudi::shim
