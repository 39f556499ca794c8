/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/port_device.h"

#include "hlthunk_shim/hlthunk/card_kinds.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>

namespace gaudi::shim {

namespace {

std::string explain_refusal(int error)
{
    return (error == EBUSY)
               ? "somebody in this process has its ports: HCL takes them when "
                 "SynapseAI acquires a card, unless INIT_HCCL_ON_ACQUIRE=false "
                 "and ENABLE_EXPERIMENTAL_FLAGS=true"
               : std::string("hbldv_open_device: ") + std::strerror(error);
}

/* HCL does the same (eq_poll in hcl_ibv_eq.cpp). */
bool read_without_waiting(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return (flags >= 0) && (fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

} // namespace

port_device::port_device(const verbs_library &lib, const card &of,
                         generation kind, card_ports place)
    : card_(of), place_(std::move(place)), context_{lib, kind, nullptr, nullptr}
{}

std::string port_device::open(const library &driver, const verbs_library &lib,
                              const card &of, unsigned number,
                              std::unique_ptr<port_device> &device_p)
{
    if (!lib.reason().empty()) {
        return lib.reason();
    }
    hlthunk_hw_ip_info info{};
    const int ret = driver.hlthunk_get_hw_ip_info(of.fd(), &info);
    if (ret != 0) {
        return std::string("the card does not tell what it is: ") +
               std::strerror(-ret);
    }
    const card_kind &kind = of.kind();
    if (kind.ports == 0) {
        return std::string("ports of ") + kind.name + " are not known";
    }
    card_ports place = find_ports(info);
    if (!place.no_map.empty()) {
        return place.no_map;
    }
    std::unique_ptr<port_device> made(new port_device(
        lib, of, static_cast<generation>(kind.ports), std::move(place)));
    std::string why = made->open(verbs_device(number));
    if (why.empty()) {
        device_p = std::move(made);
    }
    return why;
}

std::string port_device::open(const std::string &name)
{
    const verbs_library &lib = context_.lib;
    int count                = 0;
    ibv_device **list        = lib.ibv_get_device_list(&count);
    ibv_device *found        = nullptr;
    for (int i = 0; (list != nullptr) && (i < count); ++i) {
        if (name == lib.ibv_get_device_name(list[i])) {
            found = list[i];
        }
    }
    if (found != nullptr) {
        hbldv_ucontext_attr wanted{}; /* all ports */
        wanted.core_fd   = card_.fd();
        context_.context = lib.hbldv_open_device(found, &wanted);
    }
    const int error = errno;
    if (list != nullptr) {
        lib.ibv_free_device_list(list);
    }
    if (found == nullptr) {
        return "there is no verbs device " + name;
    }
    if (context_.context == nullptr) {
        return explain_refusal(error);
    }
    closed_in_children_ = {
        util::closed_in_children(context_.context->cmd_fd),
        util::closed_in_children(context_.context->async_fd)};
    context_.domain = lib.ibv_alloc_pd(context_.context);
    if (context_.domain == nullptr) {
        return std::string("ibv_alloc_pd: ") + std::strerror(errno);
    }
    return read_without_waiting(context_.context->async_fd)
               ? ""
               : std::string("events: ") + std::strerror(errno);
}

port_device::~port_device()
{
    closed_in_children_ = {};
    for (auto &each : ports_) {
        delete each.load();
    }
    if (context_.domain != nullptr) {
        (void)context_.lib.ibv_dealloc_pd(context_.domain);
    }
    if (context_.context != nullptr) {
        (void)context_.lib.ibv_close_device(context_.context);
    }
}

port *port_device::find(unsigned number, std::string &why_p)
{
    if ((number >= ports_of_card) || (((place_.enabled >> number) & 1) == 0)) {
        why_p = "port " + std::to_string(number) + " is not enabled";
        return nullptr;
    }
    const std::lock_guard<std::mutex> guard(setting_up_);
    const unsigned verbs_number = verbs_port(place_.enabled, number);
    if (!port::is_up(context_, verbs_number)) {
        why_p = "the link of port " + std::to_string(number) + " is not up";
        return nullptr;
    }
    port *known = ports_[number].load();
    if (known == nullptr) {
        std::unique_ptr<port> made;
        why_p = port::open(context_, verbs_number, made);
        if (!why_p.empty()) {
            why_p.insert(0, "port " + std::to_string(number) + ": ");
            return nullptr;
        }
        known = made.release();
        ports_[number].store(known);
    }
    known->look_at_link();
    return known;
}

void port_device::handle(const ibv_async_event &event)
{
    const auto for_all = [&](auto &&what) {
        for (auto &each : ports_) {
            if (port *known = each.load()) {
                what(*known);
            }
        }
    };
    switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:            /* as the one that is written to */
    case IBV_EVENT_QP_REQ_ERR:          /* as the one that writes */
    case IBV_EVENT_QP_LAST_WQE_REACHED: /* the peer has not answered */
    case IBV_EVENT_PATH_MIG:            /* other errors, in HCL's table */
    case IBV_EVENT_PATH_MIG_ERR:
        for_all([&](port &one) { one.fail(event.element.qp); });
        break;
    case IBV_EVENT_CQ_ERR:
        for_all([&](port &one) {
            if (one.has(event.element.cq)) {
                one.fail(nullptr);
            }
        });
        break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE: /* the link was shut down */
        /* Ports are named from 0 on in one way through the driver, and from 1
         * on in another (hbl_ib_eqe_handler and hbl_ib_port_event). */
        for_all([](port &one) { one.look_at_link(); });
        break;
    case IBV_EVENT_DEVICE_FATAL: /* the card, or a FIFO */
        for_all([](port &one) { one.fail(nullptr); });
        break;
    default:
        break;
    }
}

void port_device::look_for_events()
{
    if (!looking_.try_lock()) {
        return;
    }
    ibv_async_event event{};
    while (context_.lib.ibv_get_async_event(context_.context, &event) == 0) {
        handle(event);
        context_.lib.ibv_ack_async_event(&event);
    }
    looking_.unlock();
}

} // namespace gaudi::shim
