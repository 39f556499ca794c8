/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/card.h"

#include "hlthunk_shim/hlthunk/card_kinds.h"
#include "hlthunk_shim/hlthunk/library.h"
#include "util/warning.h"

#include <cerrno>
#include <cstring>

namespace gaudi::shim {

card::card(const library &lib, int fd, std::string bus_id, bool owned)
    : lib_(lib), fd_(fd), bus_id_(std::move(bus_id)), owned_(owned)
{
    if (owned) {
        /* Else children would keep the card busy. */
        closed_in_children_ = util::closed_in_children(fd, lib.hlthunk_close);
    }
}

card::~card()
{
    engine_.reset();
    closed_in_children_ = {};
    if (owned_ && (lib_.hlthunk_close(fd_) != 0)) {
        util::warn("closing card %s failed: %s", bus_id_.c_str(),
                   std::strerror(errno));
    }
}

/* Ask the card what it is. */
int card::find_out()
{
    hlthunk_hw_ip_info info{};
    const int ret = lib_.hlthunk_get_hw_ip_info(fd_, &info);
    if (ret != 0) {
        return ret;
    }
    kind_ = &lib_.kind_of(fd_, info.device_id);
    for (size_t i = 0; i < dma_directions; ++i) {
        queues_[i] = find_queues(*kind_, info, static_cast<dma_direction>(i));
    }
    module_id_                  = info.module_id;
    capabilities_               = find_capabilities(*kind_, info);
    capabilities_.exports_parts = can_export_parts();
    return 0;
}

int card::open(const library &lib, const std::string &bus_id,
               std::unique_ptr<card> &card_p)
{
    const int fd = lib.hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, bus_id.c_str());
    if (fd < 0) {
        return fd;
    }
    std::unique_ptr<card> made(new card(lib, fd, bus_id, true));
    const int ret = made->find_out();
    if (ret == 0) {
        card_p = std::move(made);
    }
    return ret;
}

int card::adopt(const library &lib, int fd, std::unique_ptr<card> &card_p)
{
    char bus_id[bus_id_size] = {};
    int ret = lib.hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id));
    if (ret != 0) {
        return (ret > 0) ? -EINVAL : ret;
    }
    std::unique_ptr<card> made(new card(lib, fd, bus_id, false));
    ret = made->find_out();
    if (ret == 0) {
        card_p = std::move(made);
    }
    return ret;
}

bool card::is_of(int kind) const
{
    return (kind == HLTHUNK_DEVICE_DONT_CARE) ||
           (kind == lib_.hlthunk_get_device_name_from_fd(fd_));
}

void card::tell_loss(const char *how) const
{
    if (lose()) {
        util::warn("card %s was %s: what was in its memory is lost, and it "
                   "serves this process again only when all that use it have "
                   "closed it (UCX contexts, and the program itself)",
                   bus_id_.c_str(), how);
    }
}

int card::judge_failure(int result) const
{
    const bool tells  = (lib_.hlthunk_get_device_status_info != nullptr);
    const auto status = [&] {
        return tells ? lib_.hlthunk_get_device_status_info(fd_)
                     : static_cast<int>(device_in_reset);
    };
    const auto tell = [&](int now) {
        tell_loss((now < 0) ? "removed" : "reset");
    };
    switch (result) {
    case -EBADF:
    case -ENOTTY:
        (void)lose();
        return -ENODEV;
    case -ENODEV:
        tell(status());
        return -ENODEV;
    case -EBUSY: /* the driver's answer while a reset lasts */
    case -EIO:   /* a job was aborted, most of the time by a reset */
    case -ETIMEDOUT: {
        const int now = status();
        if ((now == device_operational) || (!tells && (result != -EBUSY))) {
            return result;
        }
        tell(now);
        return (result == -ETIMEDOUT) ? result : -ENODEV;
    }
    default:
        return result;
    }
}

/* --- memory ----------------------------------------------------------------*/

int card::allocate(uint64_t size, uint64_t wished,
                   allocation &allocation_p) const
{
    return is_lost() ? -ENODEV : engine_->allocate(size, wished, allocation_p);
}

int card::register_host(void *host, uint64_t size,
                        registration &registration_p) const
{
    const int ret = is_lost() ? -ENODEV : engine_->prepare_host(host, size);
    return (ret == 0) ? engine_->map_host(host, size, registration_p) : ret;
}

int card::register_staging(void *host, uint64_t size,
                           registration &registration_p) const
{
    return is_lost() ? -ENODEV : engine_->map_host(host, size, registration_p);
}

std::optional<uint64_t> card::allocated_bytes() const
{
    hlthunk_dram_usage_info usage{};
    const auto ask = lib_.hlthunk_get_dram_usage;
    return ((ask != nullptr) && (ask(fd_, &usage) == 0))
               ? std::optional(usage.ctx_dram_mem)
               : std::nullopt;
}

} // namespace gaudi::shim
