/* SPDX-License-Identifier: BSD-3-Clause */
/* The ports of a card as programs set them up. */
#include "hlthunk_emulator/ports/port_context.h"

#include "hlthunk_emulator/ports/port_watch.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <unistd.h>

namespace gaudi::emu {

namespace {

/* PCI ids of Gaudi3, HL-338 and what comes after them. */
constexpr uint32_t first_gaudi3 = 0x1060;
/* NIC_MIN_WQS_PER_PORT: one is for raw Ethernet. */
constexpr uint32_t least_queues = 2;
/* NIC_HW_MAX_QP_NUM of gaudi2_cn.c */
constexpr uint32_t most_queues = 8192;
/* Of a work queue (min_, max_hw_user_wqs_num); of Gaudi3 gaudi3_nic.c. */
constexpr uint32_t least_entries_gaudi2 = 16;
constexpr uint32_t least_entries_gaudi3 = 4;
constexpr uint32_t most_entries         = 32768;
/* Of CQs (user_cq_min_, _max_entries), and their numbers: the first two are the
 * driver's. */
constexpr uint32_t least_cqes = 4;
constexpr uint32_t most_cqes  = 8192;
constexpr uint32_t first_cq   = 2;
/* What a port has, and the bytes of a doorbell FIFO: gaudi2_cn.h; gaudi3_nic.h
 * and what gaudi3_nic.c makes of it for a port of 200 Gbit/s. */
struct port_resources {
    uint32_t cqs;
    uint32_t fifos;
    uint32_t fifo_bytes;
};
constexpr port_resources of_gaudi2 = {14, 30, 512};
constexpr port_resources of_gaudi3 = {7, 11, 128};

const port_resources &resources(bool is_gaudi3)
{
    return is_gaudi3 ? of_gaudi3 : of_gaudi2;
}

} // namespace

port_context::port_context(unsigned card, const node_id &node, uint32_t ports,
                           int event_fd)
    : is_gaudi3_(get_settings().kind->pci_id >= first_gaudi3), card_(card),
      node_(node), mask_(ports), event_fd_(event_fd),
      watch_(port_watch::create(card))
{
    wires_.hold(card_);
    for (unsigned i = 0; i < ports_of_card; ++i) {
        const port_end own{card_, i};
        wires_.to(own).clear();
        ports_[i].was_up = wires_.is_up(own);
    }
}

port_context::~port_context()
{
    if (!gone_told_) { /* else another context may have it */
        wires_.release(card_);
    }
}

/* --- the device and its ports --------------------------------------------- */

/* No capability: congestion control is not modelled. */
int port_context::query_device(hbldv_device_attr &attr_p) const
{
    attr_p               = {};
    attr_p.num_ports     = static_cast<uint8_t>(std::popcount(mask_));
    attr_p.hw_ports_mask = mask_;
    for (unsigned i = 0; i < ports_of_card; ++i) {
        if (((mask_ & ports_of(card_).external) >> i & 1) != 0) {
            attr_p.ext_ports_mask |= uint64_t{1} << verbs_number({card_, i});
        }
    }
    return 0;
}

int port_context::allocate_pd()
{
    const bool had = std::exchange(has_pd_, true);
    return had ? -ESRCH : 0;
}

int port_context::free_pd()
{
    if (!pairs_.empty()) {
        return -EBUSY;
    }
    has_pd_ = false;
    return 0;
}

/* Of verbs' number; no_port: the context has no such port. */
unsigned port_context::find_port(unsigned number) const
{
    const auto found = port_of_verbs_number(card_, number);
    if (!found.has_value() || (((mask_ >> *found) & 1) == 0)) {
        log("accel%u: verbs port %u is none of this context's", card_, number);
        return no_port;
    }
    return *found;
}

/* hbl_cn_cmd_port_check: internal ports are always open; the others would be
 * when their network interface is up. */
int port_context::check_open(unsigned which) const
{
    if (which == no_port) {
        return -EINVAL;
    }
    const bool is_open = ((ports_of(card_).external >> which) & 1) == 0;
    if (!is_open) {
        log("accel%u: port %u leads out of the box, and is down", card_, which);
    }
    return (is_open && !is_gone_) ? 0 : -ENODEV;
}

int port_context::query_port(unsigned number, ibv_port_attr &attr_p) const
{
    /* hbl_ib_query_port */
    const unsigned which = find_port(number);
    if (which == no_port) {
        return -EINVAL;
    }
    const bool is_open = (check_open(which) == 0);
    attr_p             = {};
    attr_p.state       = is_open ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attr_p.max_mtu     = IBV_MTU_4096; /* verbs have no larger one */
    attr_p.active_mtu  = IBV_MTU_4096;
    attr_p.gid_tbl_len =
        (((ports_of(card_).external >> which) & 1) == 0) ? 1 : 13;
    attr_p.max_msg_sz   = longest_message;
    attr_p.pkey_tbl_len = 1;
    attr_p.active_width = 16; /* 2X: 50 Gbit/s each, or 100 */
    attr_p.active_speed = is_gaudi3_ ? 128 : 64;
    attr_p.phys_state   = wires_.is_up({card_, which}) ? 5 : 3;
    attr_p.link_layer   = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

/* hbl_ib_query_gid of internal ports; those of others Linux keeps. */
int port_context::query_gid(unsigned number, unsigned index,
                            ibv_gid &gid_p) const
{
    const unsigned which = find_port(number);
    if (which == no_port) {
        return -EINVAL;
    }
    const bool is_open = (check_open(which) == 0);
    std::memset(gid_p.raw, (is_open && (index == 0)) ? 0xff : 0,
                sizeof(gid_p.raw));
    return 0;
}

int port_context::query_port_ex(unsigned number,
                                hbldv_query_port_attr &attr_p) const
{
    const unsigned which = find_port(number);
    if (which == no_port) {
        return -EINVAL;
    }
    const port &asked        = ports_[which];
    attr_p                   = {};
    attr_p.max_num_of_qps    = std::max(asked.queues, 1u) - 1;
    attr_p.num_allocated_qps = static_cast<uint32_t>(asked.pairs.size());
    for (const queue_pair *each : asked.pairs) {
        attr_p.max_allocated_qp_num =
            std::max(attr_p.max_allocated_qp_num, each->qpn);
    }
    attr_p.max_cq_size          = most_cqes * cqe_bytes;
    attr_p.advanced             = asked.advanced ? 1 : 0;
    attr_p.max_num_of_cqs       = resources(is_gaudi3_).cqs;
    attr_p.max_num_of_usr_fifos = resources(is_gaudi3_).fifos;
    attr_p.nic_macro_idx        = static_cast<uint8_t>(which / 2);
    attr_p.nic_phys_port_idx    = static_cast<uint8_t>(which % 2);
    return 0;
}

/* user_set_app_params and user_wq_arr_set of hbl_cn.c. */
int port_context::set_port(const hbldv_port_ex_attr &attr)
{
    const unsigned which = find_port(attr.port_num);
    const int ret        = check_open(which);
    if (ret != 0) {
        return ret;
    }
    port &chosen = ports_[which];
    if (chosen.is_set_up) {
        log("accel%u: port %u is set up already", card_, which);
        return -EPERM;
    }
    const hbldv_wq_array_attr &queues =
        attr.wq_arr_attr[HBLDV_WQ_ARRAY_TYPE_GENERIC];
    const uint32_t least =
        is_gaudi3_ ? least_entries_gaudi3 : least_entries_gaudi2;
    if ((queues.max_num_of_wqs != 0) && (queues.max_num_of_wqes_in_wq != 0)) {
        if ((queues.swq_granularity > HBLDV_SWQE_GRAN_64B) ||
            ((queues.mem_id != HBLDV_MEM_HOST) &&
             (queues.mem_id != HBLDV_MEM_DEVICE)) ||
            (queues.max_num_of_wqs < least_queues) ||
            (queues.max_num_of_wqs > most_queues) ||
            !std::has_single_bit(queues.max_num_of_wqes_in_wq) ||
            (queues.max_num_of_wqes_in_wq < least) ||
            (queues.max_num_of_wqes_in_wq > most_entries)) {
            log("accel%u: port %u: %u work queues of %u entries: must be %u to "
                "%u, of a power of two from %u to %u",
                card_, which, queues.max_num_of_wqs,
                queues.max_num_of_wqes_in_wq, least_queues, most_queues, least,
                most_entries);
            return -EINVAL;
        }
        if (queues.swq_granularity != HBLDV_SWQE_GRAN_32B) {
            log("accel%u: WQEs of 64 bytes are not modelled", card_);
            return -EOPNOTSUPP;
        }
        chosen.queues    = queues.max_num_of_wqs;
        chosen.entries   = queues.max_num_of_wqes_in_wq;
        chosen.on_device = (queues.mem_id == HBLDV_MEM_DEVICE);
    }
    chosen.is_set_up = true;
    chosen.advanced  = (attr.caps & HBLDV_PORT_CAP_ADVANCED) != 0;
    chosen.checked   = std::all_of(std::begin(attr.qp_wq_bp_offs),
                                   std::end(attr.qp_wq_bp_offs),
                                   [](uint32_t offset) { return offset == 0; });
    return 0;
}

/* --- completion queues and doorbell FIFOs ----------------------------------
 */

int port_context::create_cq(unsigned entries, const hbldv_cq_attr &attr,
                            uint64_t object, hbldv_query_cq_attr &attr_p,
                            int &entries_p)
{
    const unsigned which = find_port(attr.port_num);
    const int closed     = check_open(which);
    if (closed != 0) {
        return closed;
    }
    if (attr.cq_type != HBLDV_CQ_TYPE_QP) {
        log("accel%u: congestion control is not modelled", card_);
        return -EOPNOTSUPP;
    }
    if (!ports_[which].is_set_up) {
        log("accel%u: port %u is not set up", card_, which);
        return -EPERM;
    }
    /* libhbl rounds up to a power of two, the driver to its least. */
    entries = std::max(std::bit_ceil(entries), least_cqes);
    if (entries > most_cqes) {
        log("accel%u: a CQ of %u entries: %u are the most", card_, entries,
            most_cqes);
        return -EINVAL;
    }
    const uint32_t cqs = resources(is_gaudi3_).cqs;
    const auto number  = free_number(first_cq, cqs, [&](uint32_t taken) {
        return std::any_of(cqs_.begin(), cqs_.end(), [&](const auto &each) {
            return (each.second.port == which) && (each.second.number == taken);
        });
    });
    if (!number.has_value()) {
        log("accel%u: port %u has no more CQs", card_, which);
        return -EBUSY;
    }
    completion_queue made;
    made.port    = which;
    made.number  = *number;
    made.entries = entries;
    made.object  = object;
    int ret      = made.memory.create(size_t{entries} * cqe_bytes);
    ret          = (ret != 0) ? ret : made.pi.create(1);
    ret          = (ret != 0) ? ret : made.registers.create(1);
    if (ret != 0) {
        return ret;
    }
    attr_p    = {nullptr,
                 made.memory.program(),
                 made.pi.program(),
                 made.registers.program(),
                 static_cast<uint32_t>(made.memory.length()),
                 *number,
                 cq_register,
                 attr.cq_type};
    entries_p = static_cast<int>(entries);
    cqs_.emplace(next_id_, std::move(made));
    return next_id_++;
}

int port_context::destroy_cq(int cq)
{
    const auto found = cqs_.find(cq);
    if (found == cqs_.end()) {
        return -EINVAL;
    }
    if (found->second.users > 0) {
        return -EBUSY;
    }
    cqs_.erase(found);
    return 0;
}

int port_context::create_fifo(const hbldv_usr_fifo_attr &attr,
                              hbldv_usr_fifo &fifo_p)
{
    const unsigned which = find_port(attr.port_num);
    const int closed     = check_open(which);
    if (closed != 0) {
        return closed;
    }
    if (attr.usr_fifo_type != HBLDV_USR_FIFO_TYPE_DB) {
        log("accel%u: congestion control is not modelled", card_);
        return -EOPNOTSUPP;
    }
    if (!ports_[which].is_set_up) {
        log("accel%u: port %u is not set up", card_, which);
        return -EPERM;
    }
    const auto &[cqs, fifos, fifo_bytes] = resources(is_gaudi3_);
    const bool is_hinted                 = (attr.usr_fifo_num_hint != 0);
    if (is_hinted && (attr.usr_fifo_num_hint >= fifos)) {
        return -EINVAL;
    }
    const auto number = free_number(
        attr.usr_fifo_num_hint, is_hinted ? 1 : fifos, [&](uint32_t taken) {
            return std::any_of(fifos_.begin(), fifos_.end(),
                               [&](const auto &each) {
                                   return (each.second.port == which) &&
                                          (each.second.number == taken);
                               });
        });
    if (!number.has_value()) {
        log("accel%u: port %u has no more doorbell FIFOs", card_, which);
        return -EBUSY;
    }
    fifo made;
    made.port   = which;
    made.number = *number;
    int ret     = made.ci.create(1);
    ret         = (ret != 0) ? ret : made.registers.create(1);
    if (ret != 0) {
        return ret;
    }
    fifo_p = {
        made.ci.program(), made.registers.program(), 0, *number, fifo_bytes,
        fifo_bytes / 2};
    fifos_.emplace(next_id_, std::move(made));
    return next_id_++;
}

int port_context::destroy_fifo(int id)
{
    return (fifos_.erase(id) != 0) ? 0 : -EINVAL;
}

/* --- events -----------------------------------------------------------------
 */

void port_context::tell(uint32_t type, uint64_t object, uint32_t port_num) const
{
    const port_event what{object, type, port_num};
    if (write(event_fd_, &what, sizeof(what)) != sizeof(what)) {
        log("accel%u: an event of type %u is lost: nobody reads them", card_,
            type);
    }
}

} // namespace gaudi::emu
