/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of plain verbs that programs with Gaudi's ports use: those that
 * HabanaAI/HCL (hcl_ibv_loader.cpp) and HabanaAI/perftest call, and what
 * belongs to them. They behave as those of rdma-core's libibverbs above its hbl
 * provider. */
#include "hlthunk_emulator/hbl/objects.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>

namespace gaudi::hbl {

namespace {

/* Of the provider's kernel driver (hbl_ib_query_device). */
constexpr uint32_t habana_vendor_id = 0x1da3;

} // namespace

int query_port_of(ibv_context *context, uint8_t port, ibv_port_attr *attr,
                  size_t length)
{
    ibv_port_attr known{};
    const int ret = result(calls().query_port(own(context).id, port, known));
    if (ret == 0) {
        std::memcpy(attr, &known, std::min(length, sizeof(known)));
    }
    return ret;
}

int not_supported(const char *function)
{
    const char *const wished = secure_getenv("HLTHUNK_EMU_LOG");
    if ((wished != nullptr) && (std::strcmp(wished, "0") != 0)) {
        std::fprintf(stderr, "hlthunk-emu: %s is not implemented\n", function);
    }
    return result(-EOPNOTSUPP);
}

int modify(ibv_qp *qp, const ibv_qp_attr &attr, int mask,
           const hbldv_qp_attr &more)
{
    const int ret =
        calls().modify_qp(own(qp->context).id, own(qp).id, attr, mask, more);
    if ((ret == 0) && ((mask & IBV_QP_STATE) != 0)) {
        qp->state = attr.qp_state;
    }
    return result(ret);
}

uint64_t event_sources::add(void *object)
{
    const std::lock_guard guard(lock_);
    known_[++last_] = {object, 0};
    return last_;
}

void event_sources::remove(uint64_t name)
{
    std::unique_lock guard(lock_);
    const auto found     = known_.find(name);
    found->second.object = nullptr; /* no more of it is read */
    acknowledged_.wait(guard,
                       [&] { return found->second.unacknowledged == 0; });
    known_.erase(found);
}

void *event_sources::read(uint64_t name)
{
    const std::lock_guard guard(lock_);
    const auto found = known_.find(name);
    if ((found == known_.end()) || (found->second.object == nullptr)) {
        return nullptr;
    }
    ++found->second.unacknowledged;
    return found->second.object;
}

void event_sources::acknowledge(uint64_t name)
{
    const std::lock_guard guard(lock_);
    --known_.at(name).unacknowledged;
    acknowledged_.notify_all();
}

} // namespace gaudi::hbl

using namespace gaudi::hbl;
using gaudi::emu::port_event;
using gaudi::emu::port_qp_view;

/* --- devices -----------------------------------------------------------------
 */

HBL_PUBLIC ibv_device **HBL_VERB(get_device_list)(int *count)
{
    const unsigned cards = calls().cards();
    /* With its end, and the devices behind it: contexts may live longer than
     * the list, and so do these. */
    static device *known;
    auto *list = static_cast<ibv_device **>(
        calloc(size_t{cards} + 1, sizeof(ibv_device *)));
    device *all = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
    if ((list != nullptr) && (all == nullptr)) {
        all = static_cast<device *>(calloc(cards + 1, sizeof(device)));
        for (unsigned i = 0; (all != nullptr) && (i < cards); ++i) {
            ibv_device &shown    = all[i].verbs;
            all[i].card          = i;
            shown.node_type      = IBV_NODE_CA;
            shown.transport_type = IBV_TRANSPORT_IB;
            std::snprintf(shown.name, sizeof(shown.name), "hbl_%u", i);
            std::snprintf(shown.dev_name, sizeof(shown.dev_name), "uverbs%u",
                          i);
            std::snprintf(shown.dev_path, sizeof(shown.dev_path),
                          "/sys/class/infiniband_verbs/uverbs%u", i);
            std::snprintf(shown.ibdev_path, sizeof(shown.ibdev_path),
                          "/sys/class/infiniband/hbl_%u", i);
        }
        device *nobodys = nullptr;
        if (!__atomic_compare_exchange_n(&known, &nobodys, all, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            free(all);
            all = nobodys;
        }
    }
    if ((list == nullptr) || (all == nullptr)) {
        free(list);
        return no_object<ibv_device *>(ENOMEM);
    }
    for (unsigned i = 0; i < cards; ++i) {
        list[i] = &all[i].verbs;
    }
    if (count != nullptr) {
        *count = static_cast<int>(cards);
    }
    return list;
}

HBL_PUBLIC void HBL_VERB(free_device_list)(ibv_device **list)
{
    free(list);
}

HBL_PUBLIC const char *HBL_VERB(get_device_name)(ibv_device *device)
{
    return device->name;
}

/* The provider opens the card itself then, and has the driver set up every
 * port, external ones too, which fails where one of them is down. */
HBL_PUBLIC ibv_context *HBL_VERB(open_device)(ibv_device *)
{
    (void)not_supported("open_device of plain verbs");
    return nullptr;
}

HBL_PUBLIC int HBL_VERB(close_device)(ibv_context *closed)
{
    context &of   = own(closed);
    const int ret = calls().close(of.id);
    close(closed->async_fd);
    close(of.events);
    delete &of;
    return result((ret == -ENODEV) ? 0 : ret);
}

HBL_PUBLIC int HBL_VERB(query_device)(ibv_context *context,
                                      ibv_device_attr *attr)
{
    const unsigned card =
        reinterpret_cast<const device *>(context->device)->card;
    *attr                = {};
    attr->vendor_id      = habana_vendor_id;
    attr->vendor_part_id = calls().pci_id();
    attr->max_qp         = 1024;
    attr->max_cqe        = 8192;
    attr->max_qp_wr      = 32768;
    attr->max_sge        = 2;
    attr->max_mr         = 1;
    attr->max_cq         = 1;
    attr->max_pd         = 1;
    attr->atomic_cap     = IBV_ATOMIC_NONE;
    attr->max_pkeys      = 1;
    attr->phys_port_cnt  = static_cast<uint8_t>(calls().ports(card));
    std::snprintf(attr->fw_ver, sizeof(attr->fw_ver), "emulator");
    return 0;
}

/* What plain verbs' function of this name fills is the part of the structure
 * that was there first. */
HBL_PUBLIC int HBL_VERB(query_port)(ibv_context *context, uint8_t port,
                                    _compat_ibv_port_attr *attr)
{
    return query_port_of(context, port, reinterpret_cast<ibv_port_attr *>(attr),
                         offsetof(ibv_port_attr, flags));
}

HBL_PUBLIC int HBL_VERB(query_gid)(ibv_context *context, uint8_t port,
                                   int index, ibv_gid *gid)
{
    const int ret = (index < 0)
                        ? -EINVAL
                        : calls().query_gid(own(context).id, port,
                                            static_cast<unsigned>(index), *gid);
    return (ret == 0) ? 0 : (result(ret), -1);
}

HBL_PUBLIC int HBL_VERB(query_gid_type)(ibv_context *context, uint8_t port,
                                        unsigned index, int *type)
{
    ibv_gid gid;
    const int ret = calls().query_gid(own(context).id, port, index, gid);
    *type         = 0; /* ports within a box are plain InfiniBand */
    return (ret == 0) ? 0 : (result(ret), -1);
}

HBL_PUBLIC int HBL_VERB(resolve_eth_l2_from_gid)(ibv_context *, ibv_ah_attr *,
                                                 uint8_t[6], uint16_t *)
{
    return not_supported("resolve_eth_l2_from_gid");
}

/* --- protection domains, memory
 * ------------------------------------------------ */

HBL_PUBLIC ibv_pd *HBL_VERB(alloc_pd)(ibv_context *context)
{
    const int ret = calls().allocate_pd(own(context).id);
    auto *made = (ret == 0) ? new (std::nothrow) ibv_pd{context, 1} : nullptr;
    return (made != nullptr) ? made
                             : no_object<ibv_pd>((ret != 0) ? -ret : ENOMEM);
}

HBL_PUBLIC int HBL_VERB(dealloc_pd)(ibv_pd *pd)
{
    const int ret = calls().free_pd(own(pd->context).id);
    if (ret == 0) {
        delete pd;
    }
    return result(ret);
}

/* Device addresses need no registration (hbl_ib_reg_mr). */
HBL_PUBLIC ibv_mr *HBL_VERB(reg_mr)(ibv_pd *, void *, size_t, int)
{
    return no_object<ibv_mr>(EOPNOTSUPP);
}

HBL_PUBLIC ibv_mr *HBL_VERB(reg_mr_iova2)(ibv_pd *, void *, size_t, uint64_t,
                                          unsigned)
{
    return no_object<ibv_mr>(EOPNOTSUPP);
}

HBL_PUBLIC ibv_mr *HBL_VERB(reg_dmabuf_mr)(ibv_pd *, uint64_t, size_t, uint64_t,
                                           int, int)
{
    return no_object<ibv_mr>(EOPNOTSUPP);
}

HBL_PUBLIC int HBL_VERB(dereg_mr)(ibv_mr *)
{
    return result(-EOPNOTSUPP);
}

/* --- queues
 * ---------------------------------------------------------------------- */

/* The provider makes one for every port then, for the tests of rdma-core. */
HBL_PUBLIC ibv_cq *HBL_VERB(create_cq)(ibv_context *, int, void *,
                                       ibv_comp_channel *, int)
{
    (void)not_supported("create_cq of plain verbs");
    return nullptr;
}

HBL_PUBLIC int HBL_VERB(destroy_cq)(ibv_cq *cq)
{
    const int ret = calls().destroy_cq(own(cq->context).id, own(cq).id);
    if (ret == 0) {
        own(cq->context).sources.remove(own(cq).name);
        delete &own(cq);
    }
    return result(ret);
}

HBL_PUBLIC ibv_qp *HBL_VERB(create_qp)(ibv_pd *pd, ibv_qp_init_attr *attr)
{
    if ((attr->send_cq == nullptr) || (attr->recv_cq == nullptr) ||
        (attr->qp_type != IBV_QPT_RC)) {
        return no_object<ibv_qp>(EINVAL);
    }
    auto *made = new (std::nothrow) queue_pair{};
    if (made == nullptr) {
        return no_object<ibv_qp>(ENOMEM);
    }
    event_sources &sources = own(pd->context).sources;
    made->name             = sources.add(made);
    made->id               = calls().create_qp(
                      own(pd->context).id, {made->name, own(attr->send_cq).id,
                                            own(attr->recv_cq).id, attr->cap.max_send_wr});
    if (made->id < 0) {
        const int error = -made->id;
        sources.remove(made->name);
        delete made;
        return no_object<ibv_qp>(error);
    }
    ibv_qp &shown    = made->verbs;
    shown.context    = pd->context;
    shown.qp_context = attr->qp_context;
    shown.pd         = pd;
    shown.send_cq    = attr->send_cq;
    shown.recv_cq    = attr->recv_cq;
    /* A handle, not the card's number (create_qp of hbl_verbs.c). */
    shown.qp_num  = static_cast<uint32_t>(made->id);
    shown.handle  = shown.qp_num;
    shown.state   = IBV_QPS_RESET;
    shown.qp_type = IBV_QPT_RC;
    return &shown;
}

/* What the provider sends then (get_default_qp_attr of its verbs.c). */
HBL_PUBLIC int HBL_VERB(modify_qp)(ibv_qp *qp, ibv_qp_attr *attr, int mask)
{
    hbldv_qp_attr more{};
    more.wq_type  = HBLDV_WQ_WRITE;
    more.priority = 1;
    return modify(qp, *attr, mask, more);
}

HBL_PUBLIC int HBL_VERB(query_qp)(ibv_qp *qp, ibv_qp_attr *attr, int,
                                  ibv_qp_init_attr *init)
{
    port_qp_view known{};
    const int ret = calls().query_qp(own(qp->context).id, own(qp).id, known);
    if (ret != 0) {
        return result(ret);
    }
    *attr             = {};
    attr->qp_state    = known.state;
    attr->dest_qp_num = known.dest_qpn;
    attr->port_num    = static_cast<uint8_t>(known.port_num);
    /* hbl_ib_query_qp has the syndrome of the last error there. */
    attr->qp_access_flags = known.syndrome;
    *init                 = {};
    init->send_cq         = qp->send_cq;
    init->recv_cq         = qp->recv_cq;
    init->qp_type         = IBV_QPT_RC;
    init->cap.max_send_wr = known.send_wqes;
    return 0;
}

HBL_PUBLIC int HBL_VERB(destroy_qp)(ibv_qp *qp)
{
    const int ret = calls().destroy_qp(own(qp->context).id, own(qp).id);
    if (ret == 0) {
        own(qp->context).sources.remove(own(qp).name);
        delete &own(qp);
    }
    return result(ret);
}

/* --- events
 * ------------------------------------------------------------------------ */

HBL_PUBLIC int HBL_VERB(get_async_event)(ibv_context *context,
                                         ibv_async_event *event)
{
    port_event what{};
    void *object = nullptr;
    do {
        if (read(context->async_fd, &what, sizeof(what)) != sizeof(what)) {
            return -1;
        }
        object = own(context).sources.read(what.object);
    } while ((what.object != 0) && (object == nullptr));
    event->event_type = static_cast<ibv_event_type>(what.type);
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
        event->element.qp        = &static_cast<queue_pair *>(object)->verbs;
        event->element.qp->state = IBV_QPS_ERR; /* hbl_async_event */
        break;
    case IBV_EVENT_CQ_ERR:
        event->element.cq = &static_cast<completion_queue *>(object)->verbs;
        break;
    default:
        event->element.port_num = static_cast<int>(what.port_num);
    }
    return 0;
}

HBL_PUBLIC void HBL_VERB(ack_async_event)(ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR: {
        ibv_qp *const of = event->element.qp;
        own(of->context).sources.acknowledge(own(of).name);
        break;
    }
    case IBV_EVENT_CQ_ERR: {
        ibv_cq *const of = event->element.cq;
        own(of->context).sources.acknowledge(own(of).name);
        break;
    }
    default:
        break;
    }
}

HBL_PUBLIC const char *HBL_VERB(event_type_str)(ibv_event_type event)
{
    static const char *const names[] = {"CQ error",
                                        "local work queue catastrophic error",
                                        "invalid request",
                                        "local access violation",
                                        "communication established",
                                        "send queue drained",
                                        "path migrated",
                                        "path migration request error",
                                        "local catastrophic error",
                                        "port active",
                                        "port error",
                                        "LID change",
                                        "P_Key change",
                                        "SM change"};
    return (static_cast<unsigned>(event) < std::size(names)) ? names[event]
                                                             : "unknown";
}
