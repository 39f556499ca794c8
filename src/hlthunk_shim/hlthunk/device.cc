#include "hlthunk_shim/hlthunk/device.h"

#include "hlthunk_shim/hlthunk/loss.h"
#include "hlthunk_shim/hlthunk/user_cb_queue.h"
#include "hlthunk_shim/memory.h"
#include "util/warning.h"

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
    : card(fd, std::move(bus_id)), lib_(lib), owned_(owned),
      submissions_(*this, lib)
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

int device::make(const library &lib, int fd, const std::string &bus_id,
                 bool owned, std::unique_ptr<device> &device_p)
{
    std::unique_ptr<device> made(new device(lib, fd, bus_id, owned));
    hlthunk_hw_ip_info info{};
    const int ret = lib.hlthunk_get_hw_ip_info(fd, &info);
    if (ret == 0) {
        made->kind_ =
            &find_kind(info.device_id, lib.hlthunk_get_device_name_from_fd(fd));
        for (size_t i = 0; i < dma_directions; ++i) {
            made->queues_[i] =
                find_queues(*made->kind_, info, static_cast<dma_direction>(i));
        }
        made->module_id_    = info.module_id;
        made->capabilities_ = find_capabilities(*made->kind_, info);
        made->find_out_about_exports();
        device_p = std::move(made);
    }
    return ret;
}

int device::open(const library &lib, const std::string &bus_id,
                 std::unique_ptr<device> &device_p)
{
    const int fd = lib.hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, bus_id.c_str());
    return (fd < 0) ? fd : make(lib, fd, bus_id, true, device_p);
}

int device::adopt(const library &lib, int fd, std::unique_ptr<device> &device_p)
{
    char bus_id[bus_id_size] = {};
    const int ret =
        lib.hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id));
    if (ret != 0) {
        return (ret < 0) ? ret : -EINVAL;
    }
    return make(lib, fd, bus_id, false, device_p);
}

bool device::is_of(int kind) const
{
    return (kind == HLTHUNK_DEVICE_DONT_CARE) ||
           (kind == lib_.hlthunk_get_device_name_from_fd(fd_));
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
    int ret = judge(*this, lib_, check_value(handle));
    if (ret != 0) {
        return ret;
    }
    allocation made(*this, handle);
    errno             = 0;
    const uint64_t va = lib_.hlthunk_device_memory_map(fd_, handle, wished);
    ret               = judge(*this, lib_, check_value(va));
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
    const int ret     = judge(*this, lib_, check_value(va));
    if (ret == 0) {
        registration_p = {*this, va};
    }
    return ret;
}

int device::unmap(uint64_t address) const
{
    return judge(*this, lib_, lib_.hlthunk_memory_unmap(fd_, address));
}

int device::free_memory(uint64_t handle) const
{
    return judge(*this, lib_, lib_.hlthunk_device_memory_free(fd_, handle));
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
    const queue_range &range = queues_[static_cast<size_t>(direction)];
    return (range.count == 0) ? -ENOTSUP
                              : user_cb_queue::create(submissions_, direction,
                                                      range, options, queue_p);
}

int device::query(ticket of, uint32_t timeout_us)
{
    return submissions_.query(of, timeout_us);
}

ticket device::blocking_ticket()
{
    return submissions_.blocking_ticket();
}

} // namespace gaudi::shim
