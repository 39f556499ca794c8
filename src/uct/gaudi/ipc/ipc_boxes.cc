/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/ipc_boxes.h"

#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/ipc_config.h"
#include "uct/gaudi/ipc/process/reachability.h"
#include "uct/gaudi/ipc/sharing/remote_key.h"
#include "util/epoll.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/random.h>
#include <sys/socket.h>

namespace gaudi::ipc {

namespace {

/* Two writes that follow each other, between switches, seconds; a GB/s is what
 * the cores make of messages that they copy twice. */
constexpr double box_latency           = 10e-6;
constexpr double box_overhead          = 500e-9;
constexpr double box_message_bandwidth = 6e9;

/* A short put waits until it is acknowledged, bytes. */
constexpr size_t longest_short = 2048;

/* Calls of progress from one look at who knocks to the next, and how many there
 * may be that have not shown that they know the secret. */
constexpr unsigned polls_per_accept = 64;
constexpr size_t most_strangers     = 64;
/* Who knocks without a pause keeps nobody from anything else. */
constexpr unsigned most_accepted = 16;

constexpr size_t length_unit = 64;

} // namespace

/* --- interfaces ------------------------------------------------------------*/

bool box_transport::is_of(const char *name)
{
    return std::strcmp(name, device) == 0;
}

ucs_status_t box_interface::open(const uct_iface_params_t &params,
                                 const interface_config &config)
{
    const ucs_status_t status = set_up(params, config);
    if (status != UCS_OK) {
        return status;
    }
    max_message = config.seg_size / length_unit * length_unit;

    way_out found;
    const std::string why = find_way_out(cards, found);
    if (!why.empty()) {
        ucs_error("gaudi_ipc: no way out of the box: %s", why.c_str());
        return UCS_ERR_NO_DEVICE;
    }
    home      = found.card;
    bandwidth = found.bandwidth;
    event_fd.reset(epoll_create1(EPOLL_CLOEXEC));
    if (event_fd) {
        listener.reset(
            socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    }
    sockaddr_in at{};
    at.sin_family    = AF_INET;
    at.sin_addr      = found.address;
    socklen_t length = sizeof(at);
    if (!listener ||
        (bind(listener.get(), reinterpret_cast<const sockaddr *>(&at),
              sizeof(at)) != 0) ||
        (listen(listener.get(), SOMAXCONN) != 0) ||
        (getsockname(listener.get(), reinterpret_cast<sockaddr *>(&at),
                     &length) != 0) ||
        !util::add_event(event_fd.get(), listener.get()) ||
        (getrandom(&own, sizeof(own.secret) + sizeof(own.identity), 0) !=
         sizeof(own.secret) + sizeof(own.identity))) {
        ucs_error("gaudi_ipc: processes of other boxes cannot be waited for at "
                  "the address of an external port: %m");
        return UCS_ERR_IO_ERROR;
    }
    closed_in_children = util::closed_in_children(listener.get());
    own.ipv4           = at.sin_addr.s_addr;
    own.port           = at.sin_port;
    own.longest        = static_cast<uint16_t>(max_message / length_unit);
    own.process        = own_process().nonce;
    own.card           = static_cast<uint32_t>(home->address());
    base::transfer_options transfers = config.transfers.engine;
    transfers.remember_host          = true;
    ucs_status_t created =
        base::transfer_engine::create(*home, transfers, engine);
    if (created == UCS_OK) {
        created = server.open(transfers);
    }
    int ends_of_copies = -1;
    if (created == UCS_OK) {
        created = engine->event_fd(ends_of_copies);
    }
    if ((created == UCS_OK) &&
        !util::add_event(event_fd.get(), ends_of_copies)) {
        created = UCS_ERR_IO_ERROR;
    }
    if (created == UCS_OK) {
        engine->show_in(super.handle());
    }
    return created;
}

/* Writes for others end before what they rely on goes. In a forked child all of
 * that is the parent's. */
box_interface::~box_interface()
{
    if (is_inherited()) {
        (void)listener.release();
    }
    for (auto &each : incoming) {
        if (is_inherited()) {
            (void)each.release();
        } else {
            each->end();
        }
    }
    server.close();
}

base::transport_properties box_transport::properties(uct_iface_h iface)
{
    const interface &self = *to_iface(iface);
    return {.device_address_bytes = sizeof(machine_address),
            .address_bytes        = sizeof(box_address),
            .max_bcopy            = self.max_bcopy,
            .max_message          = self.max_message,
            .checks_peers         = true,
            .max_put_short        = longest_short,
            .has_get_short        = false,
            .leaves_machine       = true,
            .latency              = box_latency,
            .overhead             = box_overhead,
            .bandwidth            = self.bandwidth};
}

/* A get is asked for by a message. */
base::transport_estimate
box_transport::estimate(uct_iface_h iface,
                        const base::transport_question &asked)
{
    const bool is_message = (asked.operation == UCT_EP_OP_AM_SHORT) ||
                            (asked.operation == UCT_EP_OP_AM_BCOPY);
    const bool is_get = (asked.operation == UCT_EP_OP_GET_BCOPY) ||
                        (asked.operation == UCT_EP_OP_GET_ZCOPY);
    if (is_message) {
        return {.shared_bandwidth = box_message_bandwidth,
                .latency          = box_latency,
                .send_overhead    = box_overhead,
                .recv_overhead    = box_overhead};
    }
    return {.shared_bandwidth = to_iface(iface)->bandwidth *
                                base::link_efficiency(asked.operation),
            .latency       = is_get ? 2 * box_latency / base::latencies_per_get
                                    : box_latency,
            .send_overhead = box_overhead};
}

/* Those in the box are the other device's. */
bool box_transport::is_reachable(uct_iface_h iface,
                                 const uct_device_addr_t *device_address,
                                 const uct_iface_addr_t *address)
{
    if ((device_address == nullptr) || (address == nullptr)) {
        return false;
    }
    machine_address machine;
    box_address to;
    memcpy(&machine, device_address, sizeof(machine));
    memcpy(&to, address, sizeof(to));
    return (machine.version == version) && is_in_another_box(machine) &&
           (to.longest == to_iface(iface)->own.longest);
}

/* --- progress --------------------------------------------------------------*/

/* Anybody may knock: who has said nothing for longest goes when there are too
 * many of them. */
unsigned box_interface::accept()
{
    unsigned count = 0;
    while (count < most_accepted) {
        util::unique_fd peer{::accept4(listener.get(), nullptr, nullptr,
                                       SOCK_CLOEXEC | SOCK_NONBLOCK)};
        if (!peer) {
            break;
        }
        ++count;
        auto made = std::make_unique<box_receiver>(
            server, *home, event_fd.get(), own.secret, max_message);
        if (made->take_socket(std::move(peer)) == 0) {
            incoming.push_back(std::move(made));
        }
    }
    size_t strangers = std::ranges::count_if(
        incoming, [](const auto &each) { return each->is_stranger(); });
    for (auto &each : incoming) {
        if ((strangers > most_strangers) && each->is_stranger()) {
            each->end();
            --strangers;
        }
    }
    return count;
}

unsigned box_interface::receive()
{
    unsigned count = 0;
    for (auto each = incoming.begin(); each != incoming.end();) {
        box_receiver &from = **each;
        if (!from.is_over()) {
            count += from.progress(max_poll,
                                   [&](uint8_t id, void *data, size_t length) {
                                       super.receive(id, data, length);
                                   });
        }
        const bool is_gone = from.is_over() && from.is_idle();
        each               = is_gone ? incoming.erase(each) : std::next(each);
    }
    return count;
}

void box_interface::send()
{
    const base::worker_block block(super);
    box_endpoint *ep;
    ucs_list_for_each(ep, &endpoints, all)
    {
        if (ep->super.status() == UCS_OK) {
            if (!ep->out->progress(*engine)) {
                ep->super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
            }
        } else if (!ep->super.is_failure_untold() && !ep->out->is_over()) {
            ep->out->end(); /* else what has come from it keeps us awake */
        }
    }
}

/* All are told before any has answered. */
bool box_interface::arm()
{
    const base::worker_block block(super);
    bool armed = true;
    for (const auto &each : incoming) {
        armed &= each->arm();
    }
    box_endpoint *ep;
    ucs_list_for_each(ep, &endpoints, all)
    {
        armed &= (ep->super.status() != UCS_OK) || ep->out->arm();
    }
    return armed;
}

ucs_status_t box_transport::iface_event_fd_get(uct_iface_h iface,
                                               int *fd_p) noexcept
{
    *fd_p = to_iface(iface)->event_fd.get();
    return UCS_OK;
}

/* What goes over ports has no event. */
ucs_status_t box_transport::iface_event_arm(uct_iface_h iface,
                                            unsigned) noexcept
{
    interface &self = *to_iface(iface);
    if (self.is_inherited()) {
        return UCS_OK;
    }
    const bool is_at_rest = self.pending.empty() &&
                            !self.super.has_failures() &&
                            (self.accept() == 0) && self.arm();
    const ucs_status_t status = is_at_rest ? self.engine->arm() : UCS_ERR_BUSY;
    return (status == UCS_ERR_BUSY) ? self.keep_awake() : status;
}

unsigned box_transport::iface_progress(uct_iface_h tl_iface) noexcept
{
    interface &self = *to_iface(tl_iface);
    if (ucs_unlikely(self.is_inherited())) {
        return 0;
    }
    unsigned count = self.receive();
    if (++self.polls % polls_per_accept == 0) {
        count += self.accept();
    }
    self.send();
    self.server.go_on();
    count += progress_transfers(self);
    return count + progress_waiting(self);
}

/* --- endpoints -------------------------------------------------------------*/

template <>
ucs_status_t box_endpoint::open(const uct_ep_params_t &params)
{
    box_address to;
    memcpy(&to, params.iface_addr, sizeof(to));
    if (!box_transport::is_reachable(super.iface(), params.dev_addr,
                                     params.iface_addr)) {
        return UCS_ERR_UNREACHABLE;
    }
    box_interface &iface = *box_transport::to_iface(super.iface());
    const base::worker_block block(iface.super);
    const int error = box_sender::open(*iface.home, iface.event_fd.get(), to,
                                       iface.max_message, out);
    if (error != 0) {
        ucs_debug("gaudi_ipc: no link to another box: %s",
                  std::strerror(-error));
        return (error == -ENOMEM) ? UCS_ERR_NO_MEMORY : UCS_ERR_UNREACHABLE;
    }
    base::transfer_engine::open(domain);
    ucs_list_add_tail(&iface.endpoints, &all);
    return UCS_OK;
}

ucs_status_t box_transport::ep_put_short(uct_ep_h ep, base::call_site caller,
                                         const void *buffer, unsigned length,
                                         uint64_t remote_addr,
                                         uct_rkey_t rkey) noexcept
{
    return to_iface(ep->iface)->engine->is_past_fence()
               ? rma::ep_put_short(ep, caller, buffer, length, remote_addr,
                                   rkey)
               : UCS_ERR_NO_RESOURCE;
}

ucs_status_t box_transport::find_remote(uct_ep_h ep, uct_rkey_t rkey,
                                        base::side &remote,
                                        uct_completion_t *comp)
{
    endpoint &self      = *to_ep(ep);
    ucs_status_t status = self.super.status();
    remote_key *key     = to_remote_key(rkey);
    if (status != UCS_OK) {
    } else if ((key == nullptr) || !key->is_outside() ||
               (key->process().nonce != self.out->address().process)) {
        ucs_error("gaudi_ipc: an endpoint to another box was given %s",
                  (key == nullptr) ? "no remote key"
                                   : "a remote key of another process");
        status = UCS_ERR_INVALID_PARAM;
    } else if (!self.out->is_over() && !self.out->is_in_use()) {
        return UCS_ERR_NO_RESOURCE; /* the first letter is the link's own */
    } else {
        key->lead(self.out);
        remote = base::side(*key, remote.address);
        return UCS_OK;
    }
    return (comp == nullptr) ? status
                             : to_iface(ep->iface)->engine->result_of(
                                   self.domain, status, comp);
}

} // namespace gaudi::ipc
