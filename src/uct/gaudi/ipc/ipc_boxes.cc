/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/ipc_boxes.h"

#include "uct/gaudi/base/cards/routes.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/ipc_config.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/random.h>
#include <sys/socket.h>

namespace gaudi::ipc {

namespace {

/* Two writes that follow each other, between switches, seconds; a GB/s is what
 * the cores make of messages that they copy twice. */
constexpr double box_latency   = 10e-6;
constexpr double box_overhead  = 500e-9;
constexpr double box_bandwidth = 6e9;

/* Calls of progress from one look at who knocks to the next. */
constexpr unsigned polls_per_accept = 64;

constexpr size_t length_unit = 64;

} // namespace

std::string find_box_port(const base::held_cards &cards, base::card *&card_p,
                          in_addr &address_p)
{
    base::card *const first = cards.first();
    std::string why         = "this process has no card";
    shim::port_device *const ports =
        (first != nullptr) ? base::ports_of(*first, why) : nullptr;
    if (ports == nullptr) {
        return why;
    }
    why                           = "its card has no external ports";
    const shim::card_ports &place = ports->place();
    for (const unsigned each : place.map.external(place.module_id)) {
        const shim::port *const port = ports->find(each, why);
        if (port == nullptr) {
            continue;
        }
        if (!shim::is_ipv4(port->gid())) {
            why = "port " + std::to_string(each) + " has no IPv4 address";
            continue;
        }
        card_p = first;
        std::memcpy(&address_p, &port->gid().raw[12], sizeof(address_p));
        return "";
    }
    return why;
}

/* --- interfaces ------------------------------------------------------------*/

bool box_transport::is_of(const char *name)
{
    return std::strcmp(name, device) == 0;
}

ucs_status_t box_interface::open(const uct_iface_params_t &params,
                                 const interface_config &config)
{
    const ucs_status_t status = check_message_size(params, config);
    if (status != UCS_OK) {
        return status;
    }
    max_message = config.seg_size / length_unit * length_unit;
    max_poll    = std::max(config.max_poll, 1u);
    bandwidth   = box_bandwidth;
    cards       = base::card_table::instance().cards();

    sockaddr_in at{};
    at.sin_family         = AF_INET;
    const std::string why = find_box_port(cards, home, at.sin_addr);
    if (!why.empty()) {
        ucs_error("gaudi_ipc: no way out of the box: %s", why.c_str());
        return UCS_ERR_NO_DEVICE;
    }
    listener.reset(
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t length = sizeof(at);
    if (!listener ||
        (bind(listener.get(), reinterpret_cast<const sockaddr *>(&at),
              sizeof(at)) != 0) ||
        (listen(listener.get(), SOMAXCONN) != 0) ||
        (getsockname(listener.get(), reinterpret_cast<sockaddr *>(&at),
                     &length) != 0) ||
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
    return UCS_OK;
}

base::transport_properties box_transport::properties(uct_iface_h iface)
{
    const interface &self = *to_box_iface(iface);
    return {.device_address_bytes = sizeof(machine_address),
            .address_bytes        = sizeof(box_address),
            .max_message          = self.max_message,
            .checks_peers         = true,
            .moves_memory         = false,
            .leaves_machine       = true,
            .latency              = box_latency,
            .overhead             = box_overhead,
            .bandwidth            = self.bandwidth};
}

base::transport_estimate
box_transport::estimate(uct_iface_h, const base::transport_question &)
{
    return {.shared_bandwidth = box_bandwidth,
            .latency          = box_latency,
            .send_overhead    = box_overhead,
            .recv_overhead    = box_overhead};
}

ucs_status_t
box_transport::iface_get_device_address(uct_iface_h,
                                        uct_device_addr_t *address) noexcept
{
    return base::guarded([&] {
        machine_address own = own_machine();
        own.version         = box_version;
        memcpy(address, &own, sizeof(own));
        return UCS_OK;
    });
}

ucs_status_t
box_transport::iface_get_address(uct_iface_h iface,
                                 uct_iface_addr_t *address) noexcept
{
    memcpy(address, &to_box_iface(iface)->own, sizeof(box_address));
    return UCS_OK;
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
    const machine_address own = own_machine();
    return (machine.version == box_version) &&
           ((machine.system != own.system) || (machine.box != own.box)) &&
           (to.longest == to_box_iface(iface)->own.longest);
}

bool box_transport::is_connected(uct_ep_h ep, const uct_iface_addr_t *address)
{
    box_address to;
    memcpy(&to, address, sizeof(to));
    return to_box_ep(ep)->peer == to;
}

/* --- progress --------------------------------------------------------------*/

unsigned box_interface::accept()
{
    unsigned count = 0;
    for (;;) {
        util::unique_fd peer(::accept4(listener.get(), nullptr, nullptr,
                                       SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!peer) {
            return count;
        }
        incoming.push_back(
            box_link::accept(*home, std::move(peer), own.secret, max_message));
        ++count;
    }
}

unsigned box_interface::receive()
{
    unsigned count = 0;
    for (auto each = incoming.begin(); each != incoming.end();) {
        box_link &from = **each;
        int done       = from.progress();
        if (done >= 0) {
            const int messages =
                from.deliver(static_cast<int>(max_poll),
                             [&](uint8_t id, void *data, size_t length) {
                                 super.receive(id, data, length);
                             });
            done = (messages < 0) ? messages : done + messages;
        }
        if (done < 0) {
            each = incoming.erase(each);
            continue;
        }
        count += static_cast<unsigned>(done);
        ++each;
    }
    return count;
}

/* Completions may do anything, and come last. */
unsigned box_interface::send()
{
    unsigned count = 0;
    std::vector<std::pair<uct_completion_t *, ucs_status_t>> ended;
    {
        const base::worker_block block(super);
        box_endpoint *ep;
        ucs_list_for_each(ep, &endpoints, all)
        {
            if (ep->super.status() == UCS_OK) {
                const int done = ep->out->progress();
                if (done < 0) {
                    ep->super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
                }
                count += static_cast<unsigned>(std::max(done, 0));
            }
            while (!ep->flushes.empty() &&
                   ((ep->super.status() != UCS_OK) ||
                    ep->out->is_flushed(ep->flushes.front().first))) {
                ended.emplace_back(ep->flushes.front().second,
                                   ep->super.status());
                ep->flushes.pop_front();
            }
        }
    }
    for (const auto &[completion, status] : ended) {
        uct_invoke_completion(completion, status);
        ++count;
    }
    return count;
}

unsigned box_transport::iface_progress(uct_iface_h tl_iface) noexcept
{
    interface &self = *to_box_iface(tl_iface);
    if (ucs_unlikely(self.is_inherited())) {
        return 0;
    }
    unsigned count = self.receive();
    if (++self.polls % polls_per_accept == 0) {
        count += self.accept();
    }
    count += self.send();
    if (!self.pending.empty()) {
        count += dispatch(self.pending);
    }
    if (ucs_unlikely(self.super.has_failures())) {
        count += self.super.report_failures();
    }
    return count;
}

/* UCP asks without a completion, and again. */
ucs_status_t box_transport::iface_flush(uct_iface_h tl_iface, unsigned,
                                        uct_completion_t *comp) noexcept
{
    interface &self = *to_box_iface(tl_iface);
    bool is_flushed = self.pending.empty();
    endpoint *ep;
    ucs_list_for_each(ep, &self.endpoints, all)
    {
        is_flushed = is_flushed && ((ep->super.status() != UCS_OK) ||
                                    ep->out->is_flushed(ep->out->sent()));
    }
    return is_flushed          ? UCS_OK
           : (comp == nullptr) ? UCS_INPROGRESS
                               : UCS_ERR_UNSUPPORTED;
}

/* --- endpoints -------------------------------------------------------------*/

ucs_status_t box_endpoint::open(const uct_ep_params_t &params)
{
    memcpy(&peer, params.iface_addr, sizeof(peer));
    if (!box_transport::is_reachable(super.iface(), params.dev_addr,
                                     params.iface_addr)) {
        return UCS_ERR_UNREACHABLE;
    }
    box_interface &iface = *to_box_iface(super.iface());
    sockaddr_in to{};
    to.sin_family      = AF_INET;
    to.sin_addr.s_addr = peer.ipv4;
    to.sin_port        = peer.port;
    const base::worker_block block(iface.super);
    const int ret =
        box_link::open(*iface.home, to, peer.secret, iface.max_message, out);
    if (ret != 0) {
        out.reset();
        ucs_debug("gaudi_ipc: no link to another box: %s", std::strerror(-ret));
        return (ret == -ENOMEM) ? UCS_ERR_NO_MEMORY : UCS_ERR_UNREACHABLE;
    }
    ucs_list_add_tail(&iface.endpoints, &all);
    return UCS_OK;
}

box_endpoint::~box_endpoint()
{
    if (out == nullptr) {
        return;
    }
    box_transport::ep_pending_purge(super.handle(), nullptr, nullptr);
    {
        const base::worker_block block(to_box_iface(super.iface())->super);
        ucs_list_del(&all);
        out.reset();
    }
    for (const auto &[sent, completion] : flushes) {
        uct_invoke_completion(completion, UCS_ERR_CANCELED);
    }
}

/* Its end is noticed by progress. */
ucs_status_t box_transport::check_peer(uct_ep_h)
{
    return UCS_OK;
}

ucs_status_t box_transport::ep_flush(uct_ep_h ep, unsigned flags,
                                     uct_completion_t *comp) noexcept
{
    endpoint &self = *to_box_ep(ep);
    if ((flags & UCT_FLUSH_FLAG_CANCEL) || (self.super.status() != UCS_OK) ||
        to_box_iface(ep->iface)->is_inherited()) {
        return UCS_OK;
    }
    if (!self.has_turn && !self.pending.empty()) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (self.out->is_flushed(self.out->sent())) {
        return UCS_OK;
    }
    return base::guarded([&] {
        if (comp != nullptr) {
            self.flushes.emplace_back(self.out->sent(), comp);
        }
        return UCS_INPROGRESS;
    });
}

bool box_transport::has_resources(const endpoint &ep)
{
    return (ep.super.status() != UCS_OK) || (ep.out->reserve() != nullptr);
}

ucs_status_t box_transport::try_request(endpoint &ep, uct_pending_req_t *req)
{
    if (!has_resources(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    ep.has_turn               = true;
    const ucs_status_t status = req->func(req);
    ep.has_turn               = false;
    return status;
}

namespace {

/* A message that fill(room) packs, and says how long it is. */
template <typename Fill>
ssize_t send_message(uct_ep_h ep, uint8_t id, bool is_short, Fill &&fill)
{
    box_endpoint &self = *to_box_ep(ep);
    if (ucs_unlikely(self.super.status() != UCS_OK)) {
        return self.super.status();
    }
    /* None may pass those that wait. */
    const bool may_go = self.has_turn || self.pending.empty();
    void *const room  = (may_go && !to_box_iface(ep->iface)->is_inherited())
                            ? self.out->reserve()
                            : nullptr;
    if (room == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    const size_t length = fill(room);
    self.out->publish(id, length);
    self.super.note_sent(is_short, id, room, length);
    return static_cast<ssize_t>(length);
}

ucs_status_t status_of(ssize_t result)
{
    return (result < 0) ? static_cast<ucs_status_t>(result) : UCS_OK;
}

} // namespace

ucs_status_t box_transport::ep_am_short(uct_ep_h ep, uint8_t id,
                                        uint64_t header, const void *payload,
                                        unsigned length) noexcept
{
    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(length + sizeof(header), 0,
                     to_box_iface(ep->iface)->max_message, "am_short");
    return status_of(send_message(ep, id, true, [&](void *room) {
        std::memcpy(room, &header, sizeof(header));
        if (length > 0) {
            std::memcpy(static_cast<char *>(room) + sizeof(header), payload,
                        length);
        }
        return sizeof(header) + length;
    }));
}

ucs_status_t box_transport::ep_am_short_iov(uct_ep_h ep, uint8_t id,
                                            const uct_iov_t *iov,
                                            size_t iovcnt) noexcept
{
    const size_t length = uct_iov_total_length(iov, iovcnt);
    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(length, 0, to_box_iface(ep->iface)->max_message,
                     "am_short_iov");
    return status_of(send_message(ep, id, true, [&](void *room) {
        ucs_iov_iter_t start;
        ucs_iov_iter_init(&start);
        uct_iov_to_buffer(iov, iovcnt, &start, room, length);
        return length;
    }));
}

ssize_t box_transport::ep_am_bcopy(uct_ep_h ep, uint8_t id,
                                   uct_pack_callback_t pack, void *arg,
                                   unsigned) noexcept
{
    UCT_CHECK_AM_ID(id);
    return send_message(ep, id, false,
                        [&](void *room) { return pack(room, arg); });
}

} // namespace gaudi::ipc
