#include "hlthunk_shim/hlthunk/device.h"

#include "hlthunk_shim/hlthunk/user_cb_queue.h"
#include "hlthunk_shim/memory.h"
#include "util/warning.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gaudi::shim {

namespace {

/* What a driver call returned that gives 0 for a failure, and errno then.
 * @return 0 or -errno. */
int check_value(uint64_t value)
{
    return (value != 0) ? 0 : ((errno != 0) ? -errno : -ENOMEM);
}

} // namespace

device::device(const library &lib, int fd, std::string bus_id, bool owned)
    : card(fd, std::move(bus_id)), lib_(lib), owned_(owned)
{
    if (owned) {
        /* Else children would keep the card busy. */
        closed_in_children_ = util::closed_in_children(fd, lib.hlthunk_close);
    }
}

device::~device()
{
    closed_in_children_ = {};
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
    const int ret = opened->describe();
    if (ret == 0) {
        device_p = std::move(opened);
    }
    return ret;
}

int device::adopt(const library &lib, int fd, std::unique_ptr<device> &device_p)
{
    char bus_id[bus_id_size] = {};
    int ret = lib.hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id));
    if (ret != 0) {
        return (ret < 0) ? ret : -EINVAL;
    }
    std::unique_ptr<device> adopted(new device(lib, fd, bus_id, false));
    ret = adopted->describe();
    if (ret == 0) {
        device_p = std::move(adopted);
    }
    return ret;
}

int device::describe()
{
    hlthunk_hw_ip_info info{};
    const int ret = lib_.hlthunk_get_hw_ip_info(fd_, &info);
    kind_         = &find_kind(info.device_id);
    module_id_    = info.module_id;
    capabilities_ = find_capabilities(*kind_, info);
    return ret;
}

int device::application_name() const
{
    return lib_.hlthunk_get_device_name_from_fd(fd_);
}

int device::allocate(uint64_t size, uint64_t wished,
                     allocation &allocation_p) const
{
    if (is_lost()) {
        return -ENODEV;
    }
    errno = 0;
    /* Page size 0 is the card's own; "shared" only allows an export. */
    const uint64_t handle =
        lib_.hlthunk_device_memory_alloc(fd_, size, 0, false, true);
    int ret = check_value(handle);
    if (ret != 0) {
        return ret;
    }
    allocation made(*this, handle);
    errno             = 0;
    const uint64_t va = lib_.hlthunk_device_memory_map(fd_, handle, wished);
    ret               = check_value(va);
    if (ret == 0) {
        made.add({*this, va});
        allocation_p = std::move(made);
    }
    return ret;
}

int device::register_host(void *host, uint64_t size,
                          registration &registration_p) const
{
    if (is_lost()) {
        return -ENODEV;
    }
    errno             = 0;
    const uint64_t va = lib_.hlthunk_host_memory_map(fd_, host, 0, size);
    const int ret     = check_value(va);
    if (ret == 0) {
        registration_p = {*this, va};
    }
    return ret;
}

int device::unmap(uint64_t address) const
{
    return lib_.hlthunk_memory_unmap(fd_, address);
}

int device::free_memory(uint64_t handle) const
{
    return lib_.hlthunk_device_memory_free(fd_, handle);
}

std::optional<uint64_t> device::allocated_bytes() const
{
    hlthunk_dram_usage_info usage{};
    const auto ask = lib_.hlthunk_get_dram_usage;
    return ((ask != nullptr) && (ask(fd_, &usage) == 0))
               ? std::optional(usage.ctx_dram_mem)
               : std::nullopt;
}

int device::make_queue(dma_direction direction,
                       const dma_queue_options &options,
                       std::unique_ptr<dma_queue> &queue_p)
{
    const queue_range &range = kind_->queues[static_cast<size_t>(direction)];
    return (range.count == 0) ? -ENOTSUP
                              : user_cb_queue::create(*this, direction, range,
                                                      options, queue_p);
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

ticket device::blocking_ticket()
{
    const uint64_t next = last_seq_.load(std::memory_order_acquire) + 1;
    /* Each refused submission may have used up a number. */
    const uint64_t last =
        next + std::min(refused_.load(), max_cs_in_flight - 1);
    for (uint64_t seq = next; seq <= last; ++seq) {
        const uint64_t holder = vacate(slots_[seq % max_cs_in_flight]);
        if (holder != 0) {
            return ticket{holder};
        }
    }
    return ticket::none;
}

int device::submit(hl_cs_chunk *chunks, uint32_t count, ticket &ticket_p)
{
    /* Held until the number is noted. Other threads could otherwise go once
     * around the driver's ring meanwhile, and it would forget the job before
     * anybody here knows of it. */
    const std::lock_guard<util::brief_lock> guard(submit_lock_);
    if (is_lost()) {
        return -ENODEV;
    }
    if (blocking_ticket() != ticket::none) {
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
    ticket_p = ticket{out.seq};
    return 0;
}

int device::ask_driver(uint64_t seq, uint32_t timeout_us) const
{
    if (is_closed()) {
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

int device::query(ticket of, uint32_t timeout_us)
{
    const auto seq = static_cast<uint64_t>(of);
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

void device::retire(ticket of, int result)
{
    const auto seq = static_cast<uint64_t>(of);
    slot &place    = slots_[seq % max_cs_in_flight];
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
