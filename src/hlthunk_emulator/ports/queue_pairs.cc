/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue pairs of a card's ports as programs make them. */
#include "hlthunk_emulator/ports/port_context.h"
#include "hlthunk_emulator/ports/port_watch.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>
#include <utility>

namespace gaudi::emu {

namespace {

/* NIC_TMR_TIMEOUT_MAX_GRAN */
constexpr unsigned longest_timeout = 31;

/* What ib_modify_qp_is_ok of Linux' drivers/infiniband/core/verbs.c says of RC:
 * what an attribute mask must have, and may have beside it. */
struct transition {
    ibv_qp_state from;
    ibv_qp_state to;
    int required;
    int allowed;
};

constexpr transition transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT,
     IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0,
     IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
         IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH |
         IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
};

bool is_allowed(ibv_qp_state from, ibv_qp_state to, int mask)
{
    mask &= ~IBV_QP_STATE;
    if ((to == IBV_QPS_RESET) || (to == IBV_QPS_ERR)) {
        return (mask == 0) &&
               ((to == IBV_QPS_RESET) || (from != IBV_QPS_RESET));
    }
    return std::any_of(std::begin(transitions), std::end(transitions),
                       [=](const transition &row) {
                           return (row.from == from) && (row.to == to) &&
                                  ((mask & row.required) == row.required) &&
                                  ((mask & ~(row.required | row.allowed)) == 0);
                       });
}

} // namespace

port_context::queue_pair *port_context::find_qp(int qp)
{
    const auto found = pairs_.find(qp);
    return (found == pairs_.end()) ? nullptr : &found->second;
}

port_context::queue_pair *port_context::find_qpn(unsigned which, uint32_t qpn)
{
    const auto &pairs = ports_[which].pairs;
    const auto found =
        std::find_if(pairs.begin(), pairs.end(),
                     [=](const auto *each) { return each->qpn == qpn; });
    return (found == pairs.end()) ? nullptr : *found;
}

int port_context::create_qp(const port_qp_request &request)
{
    const auto send    = cqs_.find(request.send_cq);
    const auto receive = cqs_.find(request.receive_cq);
    if ((send == cqs_.end()) || (receive == cqs_.end()) || !has_pd_) {
        return -EINVAL;
    }
    ++send->second.users;
    ++receive->second.users;
    pairs_[next_id_].created = request;
    return next_id_++;
}

int port_context::destroy_qp(int qp)
{
    queue_pair *const found = find_qp(qp);
    if (found == nullptr) {
        return -EINVAL;
    }
    reset(*found);
    --cqs_.at(found->created.send_cq).users;
    --cqs_.at(found->created.receive_cq).users;
    pairs_.erase(qp);
    return 0;
}

int port_context::query_qp(int qp, port_qp_view &view_p) const
{
    const auto found = pairs_.find(qp);
    if (found == pairs_.end()) {
        return -EINVAL;
    }
    const queue_pair &asked = found->second;
    view_p                  = {asked.state,
                               asked.qpn,
                               asked.dest_qpn,
              (asked.qpn != 0) ? verbs_number({card_, asked.port}) : 0,
                               asked.syndrome,
                               asked.created.send_wqes,
                               asked.send.program(),
                               asked.receive.program()};
    return 0;
}

/* Its number is free, and the port takes nothing for it any more. */
void port_context::release(queue_pair &of)
{
    std::erase(ports_[of.port].pairs, &of);
    if ((watch_ != nullptr) && (of.qpn != 0)) {
        watch_->forget(of.port, of.qpn);
    }
}

/* One that could send the driver drains first, in a work of its own: its number
 * is not free meanwhile, and what arrives is taken, and answered
 * (cn_qp_op_rts_2sqd of hbl_cn_qp.c, qp_destroy_work of hbl_cn.c). What it has
 * sent, and a peer that gets no core has not taken, is lost: no real wire has
 * it for so long. */
void port_context::reset(queue_pair &of)
{
    const port_qp_request created = of.created;
    const bool sends =
        (of.send.engine() != nullptr) || (of.state == IBV_QPS_RTS);
    release(of);
    if (sends && !is_gone_) {
        const auto peer = peer_of({card_, of.port});
        if (!of.is_loopback && peer.has_value()) {
            wires_.to(*peer).lose(of.dest_qpn, of.remote_key);
        }
        queue_pair &left    = draining_.emplace_back(std::move(of));
        left.created.object = 0;
        left.state          = IBV_QPS_RTR;
        left.posted = left.next = left.acknowledged;
        left.drained_at =
            clock::now() + std::chrono::milliseconds(get_settings().port_drain);
        ports_[left.port].pairs.push_back(&left);
    }
    of         = {};
    of.created = created;
}

bool port_context::stop()
{
    for (auto &[id, each] : pairs_) {
        reset(each);
    }
    return draining_.empty() || is_gone_;
}

/* alloc_qp of hbl_verbs.c, hbl_cn.c. */
int port_context::allocate(queue_pair &of, const ibv_qp_attr &attr,
                           const hbldv_qp_attr &more)
{
    const unsigned which = find_port(attr.port_num);
    const int closed     = check_open(which);
    if (closed != 0) {
        return closed;
    }
    if ((more.wq_type != HBLDV_WQ_WRITE) ||
        (more.wq_granularity != HBLDV_SWQE_GRAN_32B)) {
        log("accel%u: work queues of type %#x with granularity %u are not "
            "modelled",
            card_, more.wq_type, more.wq_granularity);
        return -EOPNOTSUPP;
    }
    reset(of);
    port &home = ports_[which];
    if (!home.is_set_up || (home.queues == 0)) {
        log("accel%u: port %u has no work queues set up", card_, which);
        return -EPERM;
    }
    const auto number = free_number(1, home.queues - 1, [&](uint32_t taken) {
        return find_qpn(which, taken) != nullptr;
    });
    if (!number.has_value()) {
        log("accel%u: port %u has %u work queues, one is the driver's, and no "
            "more are free",
            card_, which, home.queues);
        return -EBUSY;
    }
    of.port  = which;
    of.qpn   = *number;
    of.state = IBV_QPS_INIT;
    if (home.pairs.empty()) {
        wires_.to({card_, which}).clear(); /* nobody has looked at them */
    }
    home.pairs.push_back(&of);
    return 0;
}

/* set_res_qp_ctx. */
int port_context::make_ready_to_receive(queue_pair &of, const ibv_qp_attr &attr,
                                        const hbldv_qp_attr &more)
{
    if ((more.caps & (HBLDV_QP_CAP_COMPRESSION | HBLDV_QP_CAP_ENCAP)) != 0) {
        log("accel%u: compression and encapsulation are not modelled", card_);
        return -EOPNOTSUPP;
    }
    /* 1 to 8 KiB: the sizes that gaudi2_cn.c has for a QP. */
    if ((attr.path_mtu < IBV_MTU_1024) ||
        (static_cast<int>(attr.path_mtu) > shim::path_mtu_8192)) {
        log("accel%u: path MTU %d is not 1024 to 8192", card_, attr.path_mtu);
        return -EINVAL;
    }
    of.dest_qpn  = attr.dest_qp_num;
    of.local_key = more.local_key;
    /* The driver for Gaudi2 does not look at it. */
    of.is_loopback = is_gaudi3_ && ((more.caps & HBLDV_QP_CAP_LOOPBACK) != 0);
    of.state       = IBV_QPS_RTR;
    return 0;
}

/* set_req_qp_ctx. */
int port_context::make_ready_to_send(queue_pair &of, const ibv_qp_attr &attr,
                                     const hbldv_qp_attr &more)
{
    const port &home    = ports_[of.port];
    const uint32_t wqes = of.created.send_wqes;
    if ((attr.timeout > longest_timeout) || !std::has_single_bit(wqes) ||
        (wqes > home.entries) ||
        ((more.dest_wq_size != 0) && !std::has_single_bit(more.dest_wq_size))) {
        log("accel%u: port %u: a QP with a timeout of %u and %u entries, where "
            "%u and %u are the most, and a power of two",
            card_, of.port, attr.timeout, wqes, longest_timeout, home.entries);
        return -EINVAL;
    }
    if ((more.caps & HBLDV_QP_CAP_CONG_CTRL) != 0) {
        log("accel%u: port %u: no congestion control of an internal port",
            card_, of.port);
        return is_gaudi3_ ? -EOPNOTSUPP : -EINVAL;
    }
    if (!home.on_device) {
        int ret = of.send.create(size_t{wqes} * send_wqe_bytes);
        ret     = (ret != 0) ? ret
                             : of.receive.create(size_t{wqes} * receive_wqe_bytes);
        if (ret != 0) {
            return ret;
        }
    }
    of.remote_key = more.remote_key;
    if (attr.timeout != 0) {
        of.timeout = std::chrono::microseconds(4LL << attr.timeout);
    }
    of.state = IBV_QPS_RTS;
    return 0;
}

int port_context::modify_qp(int qp, const ibv_qp_attr &attr, int mask,
                            const hbldv_qp_attr &more)
{
    queue_pair *const changed = find_qp(qp);
    if (changed == nullptr) {
        return -EINVAL;
    }
    const ibv_qp_state to =
        ((mask & IBV_QP_STATE) != 0) ? attr.qp_state : changed->state;
    if (!is_allowed(changed->state, to, mask)) {
        log("accel%u: a QP does not go from state %d to %d with attributes %#x",
            card_, changed->state, to, static_cast<unsigned>(mask));
        return -EINVAL;
    }
    if (is_gone_ && (to != IBV_QPS_RESET)) {
        return -ENODEV;
    }
    int ret = 0;
    switch (((mask & IBV_QP_STATE) != 0) ? to : IBV_QPS_UNKNOWN) {
    case IBV_QPS_RESET:
        reset(*changed);
        break;
    case IBV_QPS_INIT:
        ret = allocate(*changed, attr, more);
        break;
    case IBV_QPS_RTR:
        ret = make_ready_to_receive(*changed, attr, more);
        break;
    case IBV_QPS_RTS:
        if (changed->state == IBV_QPS_RTR) {
            ret = make_ready_to_send(*changed, attr, more);
        }
        break;
    default:
        /* The driver does nothing for the error state, either. */
        break;
    }
    if ((ret != 0) && ((to == IBV_QPS_RTR) || (to == IBV_QPS_RTS))) {
        reset(*changed); /* err_reset_qp of hbl_ib_modify_qp */
    }
    return ret;
}

} // namespace gaudi::emu
