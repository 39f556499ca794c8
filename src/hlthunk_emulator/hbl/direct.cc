/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of hbldv.h, as rdma-core's hbl provider has them (verbs.c of
 * providers/hbl), and those of HCL's that it looks up beside them. */
#include "hlthunk_emulator/hbl/objects.h"

#include <cstring>
#include <new>

using namespace gaudi::hbl;
using gaudi::emu::port_qp_view;

namespace {

/* Functions of the context that inline functions of the header call. */
template <typename... Arguments>
int refuse(Arguments...)
{
    return EOPNOTSUPP;
}

ibv_context *open(ibv_device *device, const hbldv_ucontext_attr &attr)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return nullptr;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    const unsigned card = reinterpret_cast<gaudi::hbl::device *>(device)->card;
    const int id = calls().open(card, attr.core_fd, attr.ports_mask, ends[1]);
    auto *made   = (id < 0) ? nullptr : new (std::nothrow) context{};
    if (made == nullptr) {
        const int error = (id < 0) ? -id : ENOMEM;
        if (id >= 0) {
            calls().close(id);
        }
        close(ends[0]);
        close(ends[1]);
        return no_object<ibv_context>(error);
    }
    made->id                = id;
    made->events            = ends[1];
    made->verbs.sz          = sizeof(verbs_context);
    made->verbs.query_port  = query_port_of;
    ibv_context &shown      = made->verbs.context;
    shown.abi_compat        = __VERBS_ABI_IS_EXTENDED;
    shown.device            = device;
    shown.cmd_fd            = -1;
    shown.async_fd          = ends[0];
    shown.num_comp_vectors  = 1;
    shown.ops.poll_cq       = refuse;
    shown.ops.req_notify_cq = refuse;
    shown.ops.post_send     = refuse;
    shown.ops.post_recv     = refuse;
    shown.ops.post_srq_recv = refuse;
    pthread_mutex_init(&shown.mutex, nullptr);
    return &shown;
}

} // namespace

HBL_PUBLIC bool hbldv_is_supported(ibv_device *device)
{
    return std::strncmp(device->name, "hbl_", 4) == 0;
}

HBL_PUBLIC ibv_context *hbldv_open_device(ibv_device *device,
                                          hbldv_ucontext_attr *attr)
{
    return (attr != nullptr) ? open(device, *attr)
                             : no_object<ibv_context>(EINVAL);
}

HBL_PUBLIC int hbldv_query_device(ibv_context *context, hbldv_device_attr *attr)
{
    return result(calls().query_device(own(context).id, *attr));
}

HBL_PUBLIC int hbldv_set_port_ex(ibv_context *context, hbldv_port_ex_attr *attr)
{
    return result((attr == nullptr) ? -EINVAL
                                    : calls().set_port(own(context).id, *attr));
}

HBL_PUBLIC int hbldv_query_port(ibv_context *context, uint32_t port_num,
                                hbldv_query_port_attr *attr)
{
    return result((attr == nullptr) ? -EINVAL
                                    : calls().query_port_ex(own(context).id,
                                                            port_num, *attr));
}

HBL_PUBLIC ibv_cq *hbldv_create_cq(ibv_context *context, int cqe,
                                   ibv_comp_channel *channel, int,
                                   hbldv_cq_attr *attr)
{
    if ((attr == nullptr) || (cqe < 1)) {
        return no_object<ibv_cq>(EINVAL);
    }
    auto *made = new (std::nothrow) completion_queue{};
    if (made == nullptr) {
        return no_object<ibv_cq>(ENOMEM);
    }
    made->name = own(context).sources.add(made);
    made->id =
        calls().create_cq(own(context).id, static_cast<unsigned>(cqe), *attr,
                          made->name, made->known, made->verbs.cqe);
    if (made->id < 0) {
        const int error = -made->id;
        own(context).sources.remove(made->name);
        delete made;
        return no_object<ibv_cq>(error);
    }
    made->known.ibvcq   = &made->verbs;
    made->verbs.context = context;
    made->verbs.channel = channel;
    made->verbs.handle  = static_cast<uint32_t>(made->id);
    return &made->verbs;
}

HBL_PUBLIC int hbldv_query_cq(ibv_cq *cq, hbldv_query_cq_attr *attr)
{
    *attr = own(cq).known;
    return 0;
}

HBL_PUBLIC int hbldv_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask,
                               hbldv_qp_attr *hbl_attr)
{
    /* Those of its own are optional. */
    hbldv_qp_attr usual{};
    usual.wq_type  = HBLDV_WQ_WRITE;
    usual.priority = 1;
    return modify(qp, *attr, attr_mask,
                  (hbl_attr != nullptr) ? *hbl_attr : usual);
}

HBL_PUBLIC int hbldv_query_qp(ibv_qp *qp, hbldv_query_qp_attr *attr)
{
    port_qp_view known{};
    const int ret = calls().query_qp(own(qp->context).id, own(qp).id, known);
    if (ret == 0) {
        *attr = {known.qpn, known.send, known.receive};
    }
    return result(ret);
}

HBL_PUBLIC hbldv_usr_fifo *hbldv_create_usr_fifo(ibv_context *context,
                                                 hbldv_usr_fifo_attr *attr)
{
    auto *made = new (std::nothrow) doorbell_fifo{};
    if (made == nullptr) {
        return no_object<hbldv_usr_fifo>(ENOMEM);
    }
    made->context = context;
    made->id      = calls().create_fifo(own(context).id, *attr, made->verbs);
    if (made->id < 0) {
        const int error = -made->id;
        delete made;
        return no_object<hbldv_usr_fifo>(error);
    }
    return &made->verbs;
}

HBL_PUBLIC int hbldv_destroy_usr_fifo(hbldv_usr_fifo *fifo)
{
    auto *const of = reinterpret_cast<doorbell_fifo *>(fifo);
    const int ret  = calls().destroy_fifo(own(of->context).id, of->id);
    delete of;
    return result(ret);
}

HBL_PUBLIC hbldv_encap *hbldv_create_encap(ibv_context *, hbldv_encap_attr *)
{
    (void)not_supported("hbldv_create_encap"); /* nothing leaves the box */
    return nullptr;
}

HBL_PUBLIC int hbldv_destroy_encap(hbldv_encap *)
{
    return not_supported("hbldv_destroy_encap");
}

/* HCL does not load without these. */

HBL_PUBLIC int hbldv_reserve_coll_qps(ibv_pd *, void *, void *)
{
    return not_supported("hbldv_reserve_coll_qps");
}

HBL_PUBLIC int hbldv_migrate_qp(ibv_qp *)
{
    return not_supported("hbldv_migrate_qp");
}

HBL_PUBLIC int hbldv_reserve_coll_sched_resources(ibv_context *, void *)
{
    return not_supported("hbldv_reserve_coll_sched_resources");
}
