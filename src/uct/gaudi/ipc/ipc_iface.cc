/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/ipc_iface.h"

#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "uct/gaudi/ipc/address.h"
#include "uct/gaudi/ipc/ipc_md.h"
#include "uct/gaudi/ipc/service.h"
#include "util/epoll.h"
#include "util/process.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* An active message between two processes, seconds. UCX's own shared-memory
 * transports say 80 ns: where they are allowed, UCP is to take them, since a
 * fence costs this one a little more. */
constexpr double message_latency  = 100e-9;
constexpr double message_overhead = 15e-9;

/* What UCP is told of a card's link: it is to take gaudi_cpy within a process.
 * It compares times for 256 KiB, and from 1.15 on adds the way to the card's
 * NUMA node, up to 0.3 us, to those of gaudi_cpy alone, which has a system
 * device. */
constexpr double share_of_link = 15.0 / 16;

/* What UCP is told of a long put's share of that: a little less than a get's,
 * so that where it has the choice all releases pull. */
constexpr double share_of_put = 15.0 / 16;

/* Before the card has the first bytes of another process's host memory: the
 * owner's thread, and its copy of a chunk, seconds. */
constexpr double staging_latency = 4e-6;

/* Two copies of the CPU at once, bytes/second; as UCX's own transports. */
constexpr double message_bandwidth = 12000.0 * (1 << 20);

static_assert(longest_message <= link::max_payload);

/* A link has as many chunks more as an engine has of a card: each is under way
 * for longer. */
constexpr unsigned chunks_per_own = 2;

/* What a peer sent before its end comes first, but others may send on. */
constexpr unsigned turns_for_last_messages = 1000;

/* Messages that one call of progress delivers, as with UCX's shared memory. */
constexpr unsigned max_messages = 16;

/* Behind what has made room. */
unsigned progress_waiting(interface &self)
{
    unsigned count = 0;
    if (!self.pending.empty()) {
        count += transport::dispatch(self.pending);
    }
    if (ucs_unlikely(self.super.has_failures())) {
        count += self.super.report_failures();
    }
    return count;
}

unsigned progress_transfers(interface &self)
{
    unsigned count = self.engine->progress();
    while (base::flush_domain *of = self.engine->take_failed()) {
        const base::worker_block block(self.super);
        ucs_container_of(of, endpoint, domain)->super.fail(of->failure);
    }
    return count;
}

/* What arming comes to when progress is to go on. With an interface that the
 * worker does not progress UCP sleeps even so, and looks at it again upon an
 * event (ucp_worker_iface_check_events_do of ucp_worker.c). */
ucs_status_t keep_awake(interface &self)
{
    if (self.super.is_progressed()) {
        return UCS_ERR_BUSY;
    }
    self.wakes->signal();
    return UCS_OK;
}

} // namespace

ucs_config_field_t transport::config_table[] = {
    {"", "", nullptr, offsetof(config, super),
     UCS_CONFIG_TYPE_TABLE(uct_iface_config_table)},

    {"", "", nullptr, offsetof(config, transfers),
     UCS_CONFIG_TYPE_TABLE(base::transfer_config_table)},

    {nullptr, nullptr, nullptr, 0, {}}};

base::transport_properties transport::properties(uct_iface_h iface)
{
    const interface &self = *to_iface(iface);
    return {.device_address_bytes = sizeof(machine_address),
            .address_bytes        = sizeof(interface_address),
            .max_bcopy            = self.max_bcopy,
            .max_message          = longest_message,
            .checks_peers         = true,
            .latency              = message_latency,
            .overhead             = message_overhead,
            .bandwidth            = self.bandwidth};
}

/* Of a put or get. Host memory of this process its card reaches by itself; that
 * of another one goes through staging, and the other one's card is to do it. */
static base::transport_estimate
estimate_copy(double bandwidth, bool is_put, bool is_zcopy,
              const base::transport_question &asked)
{
    const ucs_memory_type_t gaudi = base::memory_type();
    base::transport_estimate cost{.shared_bandwidth = bandwidth,
                                  .latency          = base::job_latency};
    if (is_zcopy && (asked.local == gaudi) &&
        (asked.remote == UCS_MEMORY_TYPE_HOST)) {
        cost.shared_bandwidth = std::min(bandwidth, message_bandwidth);
        cost.latency += staging_latency;
    } else if (is_put && is_zcopy) {
        cost.shared_bandwidth *= share_of_put;
    }
    if (is_put && (asked.remote == gaudi)) {
        cost.latency += base::job_latency; /* the owner has to be asked */
    }
    if (!is_put) {
        cost.latency /= base::latencies_per_get;
    }
    return cost;
}

base::transport_estimate
transport::estimate(uct_iface_h iface, const base::transport_question &asked)
{
    const double bandwidth =
        to_iface(iface)->bandwidth * base::link_efficiency(asked.operation);
    if (!asked.operation.has_value()) {
        return {.shared_bandwidth = bandwidth, .latency = message_latency};
    }
    switch (*asked.operation) {
    case UCT_EP_OP_AM_SHORT:
    case UCT_EP_OP_AM_BCOPY:
        return {.own_bandwidth = message_bandwidth,
                .latency       = message_latency,
                .send_overhead = message_overhead,
                .recv_overhead = message_overhead};
    case UCT_EP_OP_GET_SHORT:
    case UCT_EP_OP_GET_BCOPY:
        return estimate_copy(bandwidth, false, false, asked);
    case UCT_EP_OP_GET_ZCOPY:
        return estimate_copy(bandwidth, false, true, asked);
    case UCT_EP_OP_PUT_ZCOPY:
        return estimate_copy(bandwidth, true, true, asked);
    default: /* put_short and put_bcopy, and what this does not know */
        return estimate_copy(bandwidth, true, false, asked);
    }
}

bool transport::moves_host(uct_iface_h iface)
{
    return base::component_functions<memory_domain>::of(
               to_iface(iface)->super.md())
        .moves_host();
}

/* One device for the machine, in a process without a card, too. */
std::vector<base::transport_device> transport::devices()
{
    return {{base::ipc_device, UCT_DEVICE_TYPE_SHM, UCS_SYS_DEVICE_ID_UNKNOWN}};
}

ucs_status_t
transport::iface_get_device_address(uct_iface_h,
                                    uct_device_addr_t *address) noexcept
{
    return base::guarded_entry([&] {
        const machine_address own = own_machine();
        memcpy(address, &own, sizeof(own));
        return UCS_OK;
    });
}

ucs_status_t transport::iface_get_address(uct_iface_h iface,
                                          uct_iface_addr_t *address) noexcept
{
    const ucs_status_t status = base::check_process();
    if (status == UCS_OK) {
        const interface_address own{util::process_identity(),
                                    to_iface(iface)->inbox->number,
                                    static_cast<uint32_t>(getpid())};
        memcpy(address, &own, sizeof(own));
    }
    return status;
}

bool transport::is_reachable(uct_iface_h,
                             const uct_device_addr_t *device_address,
                             const uct_iface_addr_t *address)
{
    if ((device_address == nullptr) || (address == nullptr)) {
        return false;
    }
    machine_address machine;
    interface_address to;
    memcpy(&machine, device_address, sizeof(machine));
    memcpy(&to, address, sizeof(to));
    bool result = false;
    (void)base::guarded([&] {
        result = ipc::is_reachable(machine, to);
        return UCS_OK;
    });
    return result;
}

unsigned transport::iface_progress(uct_iface_h tl_iface) noexcept
{
    interface &self = *to_iface(tl_iface);
    unsigned count  = self.inbox->poll(
         max_messages, [&](uint8_t id, void *data, size_t length) {
            self.super.receive(id, data, length);
        });
    if (!self.engine->is_idle()) {
        count += progress_transfers(self);
    }
    count += service::progress();
    if (ucs_unlikely(self.wakes->has_link_end()) &&
        ((count == 0) || (++self.turns_since_end > turns_for_last_messages))) {
        self.turns_since_end = 0;
        (void)self.wakes->take_link_end();
        fail_lost_endpoints(self);
    }
    return count + progress_waiting(self);
}

/* One descriptor for messages and ends of requests and links, and for ends of
 * the cards' jobs. */
ucs_status_t transport::iface_event_fd_get(uct_iface_h tl_iface,
                                           int *fd_p) noexcept
{
    interface &self = *to_iface(tl_iface);
    if (!self.event_fd) {
        int transfers;
        ucs_status_t status = self.engine->event_fd(transfers);
        if (status != UCS_OK) {
            return status;
        }
        util::unique_fd all(epoll_create1(EPOLL_CLOEXEC));
        if (!all || !util::add_event(all.get(), transfers) ||
            !util::add_event(all.get(), self.wakes->fd())) {
            ucs_error("gaudi_ipc: no event descriptor: %m");
            return UCS_ERR_IO_ERROR;
        }
        self.event_fd = std::move(all);
    }
    *fd_p = self.event_fd.get();
    return UCS_OK;
}

/* Whatever the caller waits for: its sends need messages of the peer, too. A
 * request that waits for room in a peer's ring gets no event, so the caller has
 * to go on making progress. */
ucs_status_t transport::iface_event_arm(uct_iface_h tl_iface, unsigned) noexcept
{
    interface &self = *to_iface(tl_iface);
    self.wakes->clear(); /* before the looks: what comes later signals again */
    const bool is_at_rest = self.pending.empty() && !self.super.has_failures();
    ucs_status_t status   = is_at_rest ? self.engine->arm() : UCS_ERR_BUSY;
    if (status == UCS_OK) {
        status = base::guarded(
            [&] { return self.inbox->arm() ? UCS_OK : UCS_ERR_BUSY; });
    }
    if ((status == UCS_OK) && self.wakes->take_link_end()) {
        fail_lost_endpoints(self);
        status = self.super.has_failures() ? UCS_ERR_BUSY : UCS_OK;
    }
    return (status == UCS_ERR_BUSY) ? keep_awake(self) : status;
}

interface::~interface()
{
    engine.reset(); /* its transfers end before peers find no inbox */
    if (inbox != nullptr) {
        service::instance().remove(*inbox);
    }
}

ucs_status_t interface::open(const uct_iface_params_t &params,
                             const interface_config &config)
{
    base::card_table::instance().note_application_cards();
    ucs_status_t status = base::check_alignment(params, longest_message);
    if (status != UCS_OK) {
        return status;
    }
    max_bcopy = config.transfers.chunk_bytes;
    cards     = base::card_table::instance().cards();
    home      = cards.first();
    bandwidth = share_of_link *
                config.transfers.bandwidth_or(base::link_bandwidth(home));
    sizes = {config.transfers.chunk_bytes,
             config.transfers.chunks * chunks_per_own};
    wakes = std::make_shared<event>();
    if (wakes->fd() < 0) {
        ucs_error("gaudi_ipc: no event descriptor: %m (raise ulimit -n)");
        return UCS_ERR_IO_ERROR;
    }
    base::transfer_options transfers = config.transfers.options();
    transfers.remember_host          = true;
    status                           = (home != nullptr)
                                           ? base::transfer_engine::create(*home, transfers, engine)
                                           : base::transfer_engine::create(transfers, engine);
    if (status == UCS_OK) {
        auto made = std::make_shared<receiver>(wakes);
        status    = service::instance().add(made);
        if (status == UCS_OK) {
            inbox = std::move(made);
            engine->show_in(super.handle());
        }
    }
    return status;
}

} // namespace gaudi::ipc

uct_component_t &gaudi::ipc::component()
{
    return base::component<gaudi::ipc::memory_domain>;
}

void gaudi::ipc::register_component()
{
    base::register_component<gaudi::ipc::memory_domain, transport>();
}
