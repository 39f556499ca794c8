/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/copy/copy_iface.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/copy/copy_md.h"
#include "util/process.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

namespace gaudi::copy {

namespace {

/* A call that copies host memory, seconds. UCP's default RMA gives its lane
 * addresses of either kind unseen, and takes the lane that looks fastest for
 * host memory: on the own worker that has to be this one and not shared memory,
 * which would touch device memory with the CPU. What DMA takes is told by
 * estimate_perf, which the newer protocols ask. No less than 16 ns: short
 * worker addresses (UCX_ADDRESS_VERSION=v2) carry no less, and of what lies
 * between 8 and 16 ns UCX 1.13 makes nearly nothing. */
constexpr double call_latency = 16e-9;

/* The device of a process that has no card, maybe not yet. UCX uses no memory
 * domain that has no device, and what it does not ask about is host memory. */
constexpr char any_card[] = "gaudi";

/* The interfaces of a process, in the order of their opening. */
struct interface_list {
    std::mutex lock; /* leaf */
    std::vector<const interface *> all;
    uint64_t opened = 0; /* so far */

    /* Of those that a condition is true of, or nullptr. Under the lock. */
    template <typename Condition>
    [[nodiscard]] const interface *first(Condition &&is_it) const
    {
        const auto found = std::find_if(all.begin(), all.end(), is_it);
        return (found != all.end()) ? *found : nullptr;
    }
};

interface_list &interfaces()
{
    return util::of_this_process<interface_list>();
}

void add_interface(interface *iface)
{
    interface_list &list = interfaces();
    std::lock_guard<std::mutex> guard(list.lock);
    list.all.push_back(iface);
    iface->number = ++list.opened;
}

void remove_interface(const interface *iface)
{
    interface_list &list = interfaces();
    std::lock_guard<std::mutex> guard(list.lock);
    std::erase(list.all, iface);
}

bool is_first_of_worker(const interface *iface)
{
    interface_list &list = interfaces();
    std::lock_guard<std::mutex> guard(list.lock);
    return list.first([&](const auto *other) {
        return other->super.shares_worker(iface->super);
    }) == iface;
}

} // namespace

ucs_config_field_t transport::config_table[] = {
    {"", "", nullptr, offsetof(config, super),
     UCS_CONFIG_TYPE_TABLE(uct_iface_config_table)},

    {"", "", nullptr, offsetof(config, transfers),
     UCS_CONFIG_TYPE_TABLE(base::transfer_config_table)},

    {nullptr, nullptr, nullptr, 0, {}}};

base::transport_properties transport::properties(uct_iface_h tl_iface)
{
    const interface *iface = to_iface(tl_iface);
    return {.address_bytes = sizeof(interface_address),
            .max_bcopy     = iface->max_bcopy,
            .latency       = call_latency,
            .bandwidth     = iface->bandwidth};
}

base::transport_estimate
transport::estimate(uct_iface_h iface, const base::transport_question &asked)
{
    return {.shared_bandwidth = to_iface(iface)->bandwidth *
                                base::link_efficiency(asked.operation),
            .latency = base::job_latency};
}

std::vector<base::transport_device> transport::devices()
{
    std::vector<base::transport_device> devices;
    const base::held_cards cards = base::card_table::instance().cards();
    if (cards.empty()) {
        return {{any_card, UCT_DEVICE_TYPE_ACC, UCS_SYS_DEVICE_ID_UNKNOWN}};
    }
    for (const base::card *card : cards.all()) {
        if (!card->is_lost()) {
            devices.push_back(
                {card->name(), UCT_DEVICE_TYPE_ACC, card->sys_device()});
        }
    }
    return devices;
}

ucs_status_t transport::iface_get_device_address(uct_iface_h,
                                                 uct_device_addr_t *) noexcept
{
    return UCS_OK; /* empty */
}

ucs_status_t transport::iface_get_address(uct_iface_h iface,
                                          uct_iface_addr_t *address) noexcept
{
    const ucs_status_t status = base::check_process();
    if (status == UCS_OK) {
        const interface_address own{util::process_identity(),
                                    to_iface(iface)->number};
        memcpy(address, &own, sizeof(own));
    }
    return status;
}

bool transport::is_reachable(uct_iface_h iface, const uct_device_addr_t *,
                             const uct_iface_addr_t *address)
{
    interface_address to{};
    if (address != nullptr) {
        memcpy(&to, address, sizeof(to));
    }
    return (to.process == util::process_identity()) &&
           is_first_of_worker(to_iface(iface));
}

bool transport::is_connected(uct_ep_h ep, const uct_iface_addr_t *address)
{
    interface_address to;
    memcpy(&to, address, sizeof(to));
    return find_interface(to) == to_ep(ep)->peer;
}

unsigned transport::iface_progress(uct_iface_h tl_iface) noexcept
{
    interface *iface = to_iface(tl_iface);
    /* UCP comes here at every progress of programs that use host memory, too.
     */
    if (iface->engine->is_idle() && iface->pending.empty() &&
        !iface->super.has_failures()) {
        return 0;
    }
    unsigned count = iface->engine->progress();
    count += dispatch(iface->pending);
    while (base::flush_domain *of = iface->engine->take_failed()) {
        ucs_container_of(of, endpoint, domain)->super.fail(of->failure);
    }
    return count + iface->super.report_failures();
}

ucs_status_t transport::iface_event_fd_get(uct_iface_h tl_iface,
                                           int *fd_p) noexcept
{
    return to_iface(tl_iface)->engine->event_fd(*fd_p);
}

/* Completions are the only events, whatever the caller waits for: they are what
 * its own sends and receives hang on. */
ucs_status_t transport::iface_event_arm(uct_iface_h tl_iface, unsigned) noexcept
{
    interface *iface = to_iface(tl_iface);
    if (iface->super.has_failures()) {
        return UCS_ERR_BUSY;
    }
    ucs_status_t status = iface->engine->arm();
    if ((status == UCS_OK) && !iface->pending.empty() &&
        iface->engine->has_resources()) {
        return UCS_ERR_BUSY;
    }
    return status;
}

interface_end find_interface(const interface_address &address)
{
    if (address.process != util::process_identity()) {
        return nullptr;
    }
    interface_list &list = interfaces();
    std::lock_guard<std::mutex> guard(list.lock);
    const auto *found = list.first(
        [&](const auto *iface) { return iface->number == address.number; });
    return (found != nullptr) ? found->end : nullptr;
}

ucs_status_t interface::open(const uct_iface_params_t &params,
                             const interface_config &config)
{
    (void)base::guarded([] {
        base::card_table::instance().note_application_cards();
        return UCS_OK;
    });
    const std::string name       = params.mode.device.dev_name;
    const bool is_any            = (name == any_card);
    const base::held_cards cards = base::card_table::instance().cards();
    base::card *own              = cards.find_open([&](const base::card &card) {
        return is_any || (card.name() == name);
    });
    if ((own == nullptr) && !is_any) {
        ucs_error("gaudi_cpy: there is no device '%s'", name.c_str());
        return UCS_ERR_NO_DEVICE;
    }

    const auto options = config.transfers.options();
    const ucs_status_t status =
        (own != nullptr) ? base::transfer_engine::create(*own, options, engine)
                         : base::transfer_engine::create(options, engine);
    if (status != UCS_OK) {
        return status;
    }
    engine->show_in(super.handle());
    max_bcopy = options.chunk_bytes;
    bandwidth = config.transfers.bandwidth_or(base::link_bandwidth(own));
    add_interface(this);
    return UCS_OK;
}

interface::~interface()
{
    remove_interface(this);
    end->store(true, std::memory_order_relaxed);
}

} // namespace gaudi::copy

void gaudi::copy::register_component()
{
    base::register_component<gaudi::copy::memory_domain, transport>();
}
