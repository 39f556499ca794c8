#include "uct/gaudi/copy/copy_iface.h"

#include "uct/gaudi/base/transfer/transfer_config.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/unsupported.h"
#include "uct/gaudi/copy/copy_md.h"
#include "util/process.h"

#include <atomic>
#include <climits>
#include <mutex>

namespace gaudi::copy {

namespace {

using base::unsupported;

struct iface_config {
    uct_iface_config_t super;
    base::transfer_config transfers;
};

ucs_config_field_t iface_config_table[] = {
    {"", "", nullptr, offsetof(iface_config, super),
     UCS_CONFIG_TYPE_TABLE(uct_iface_config_table)},

    {"", "", nullptr, offsetof(iface_config, transfers),
     UCS_CONFIG_TYPE_TABLE(base::transfer_config_table)},

    {nullptr, nullptr, nullptr, 0, {}}};

/* Submission and completion of one job on a card, seconds. An estimate: the
 * figure was not measured on hardware. */
constexpr double job_latency = 4e-6;

/* A call that copies host memory, seconds. UCP's default RMA gives its lane
 * addresses of either kind unseen, and takes the lane that looks fastest for
 * host memory: on the own worker that has to be this one and not shared memory,
 * which would touch device memory with the CPU. What DMA takes is told by
 * estimate_perf, which the newer protocols ask. No less than 16 ns: short
 * worker addresses (UCX_ADDRESS_VERSION=v2) carry no less, and of what lies
 * between 8 and 16 ns UCX 1.13 makes nearly nothing. */
constexpr double call_latency = 16e-9;

/* How much of the link an operation gets. Short and bcopy operations touch the
 * bytes once more on the CPU, and reads of a PCIe device are slower than
 * writes to it. */
double efficiency(uct_ep_operation_t operation)
{
    switch (operation) {
    case UCT_EP_OP_PUT_SHORT:
        return 0.40;
    case UCT_EP_OP_GET_SHORT:
        return 0.35;
    case UCT_EP_OP_PUT_BCOPY:
        return 0.45;
    case UCT_EP_OP_GET_BCOPY:
        return 0.40;
    case UCT_EP_OP_PUT_ZCOPY:
        return 0.95;
    case UCT_EP_OP_GET_ZCOPY:
        return 0.90;
    default:
        return 0;
    }
}

ucs_status_t iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr) noexcept
{
    uct_gaudi_copy_iface_t *iface = to_iface(tl_iface);

    uct_base_iface_query(&iface->super, attr);
    attr->iface_addr_len = sizeof(interface_address);
    attr->cap.flags      = UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                      UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY |
                      UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_SHORT |
                      UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY |
                      UCT_IFACE_FLAG_PENDING |
                      UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    /* UCP wants both of a lane for rendezvous. */
    attr->cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP |
                            UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD;

    attr->cap.put.max_short       = UINT_MAX;
    attr->cap.put.max_bcopy       = iface->max_bcopy;
    attr->cap.put.min_zcopy       = 0;
    attr->cap.put.max_zcopy       = SIZE_MAX;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;
    attr->cap.put.max_iov         = 1;

    attr->cap.get.max_short       = UINT_MAX;
    attr->cap.get.max_bcopy       = iface->max_bcopy;
    attr->cap.get.min_zcopy       = 0;
    attr->cap.get.max_zcopy       = SIZE_MAX;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;
    attr->cap.get.max_iov         = 1;

    attr->cap.am.opt_zcopy_align = 1;
    attr->cap.am.align_mtu       = 1;

    attr->latency             = ucs_linear_func_make(call_latency, 0);
    attr->bandwidth.dedicated = 0;
    attr->bandwidth.shared    = iface->bandwidth;
    attr->overhead            = 0;
    attr->priority            = 0;
    return UCS_OK;
}

ucs_status_t estimate_perf(uct_iface_h tl_iface, uct_perf_attr_t *attr) noexcept
{
    const uct_gaudi_copy_iface_t *iface = to_iface(tl_iface);
    const uint64_t fields               = attr->field_mask;

    if (fields & UCT_PERF_ATTR_FIELD_BANDWIDTH) {
        const bool one = (fields & UCT_PERF_ATTR_FIELD_OPERATION) != 0;
        attr->bandwidth.dedicated = 0;
        attr->bandwidth.shared =
            iface->bandwidth * (one ? efficiency(attr->operation) : 1.0);
    }
    if (fields & UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD) {
        attr->send_pre_overhead = 0;
    }
    if (fields & UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD) {
        attr->send_post_overhead = 0;
    }
    if (fields & UCT_PERF_ATTR_FIELD_RECV_OVERHEAD) {
        attr->recv_overhead = 0; /* UCP asserts this for RMA operations */
    }
    if (fields & UCT_PERF_ATTR_FIELD_LATENCY) {
        attr->latency = ucs_linear_func_make(job_latency, 0);
    }
    if (fields & UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS) {
        attr->max_inflight_eps = SIZE_MAX;
    }
    return UCS_OK;
}

ucs_status_t iface_get_device_address(uct_iface_h, uct_device_addr_t *) noexcept
{
    return UCS_OK; /* empty */
}

ucs_status_t iface_get_address(uct_iface_h tl_iface,
                               uct_iface_addr_t *addr) noexcept
{
    const interface_address own{util::process_identity(),
                                to_iface(tl_iface)->number};
    memcpy(addr, &own, sizeof(own));
    return UCS_OK;
}

/* The interfaces of a process, in the order of their opening. A forked child
 * begins a list of its own: its parent's may have been in use. */
struct interface_list {
    interface_list() { ucs_list_head_init(&head); }

    const unsigned generation = util::process_generation();
    std::mutex lock; /* leaf */
    ucs_list_link_t head;
    uint64_t opened = 0; /* so far */
};

interface_list &interfaces()
{
    static std::atomic<interface_list *> current{nullptr};

    interface_list *known = current.load();
    if ((known == nullptr) ||
        (known->generation != util::process_generation())) {
        auto fresh = std::make_unique<interface_list>();
        if (current.compare_exchange_strong(known, fresh.get())) {
            known = fresh.release();
        }
    }
    return *known;
}

void add_interface(uct_gaudi_copy_iface_t *iface)
{
    interface_list &list = interfaces();
    std::lock_guard<std::mutex> guard(list.lock);
    iface->number = ++list.opened;
    ucs_list_add_tail(&list.head, &iface->all);
}

void remove_interface(uct_gaudi_copy_iface_t *iface)
{
    interface_list &list = interfaces();
    if (iface->generation != list.generation) {
        return; /* it is in the list of the parent */
    }
    std::lock_guard<std::mutex> guard(list.lock);
    ucs_list_del(&iface->all);
}

bool is_first_of_worker(const uct_gaudi_copy_iface_t *iface)
{
    interface_list &list = interfaces();
    std::lock_guard<std::mutex> guard(list.lock);
    const uct_gaudi_copy_iface_t *other;
    ucs_list_for_each(other, &list.head, all)
    {
        if (other->super.worker == iface->super.worker) {
            return other == iface;
        }
    }
    return false;
}

int iface_is_reachable(const uct_iface_h tl_iface, const uct_device_addr_t *,
                       const uct_iface_addr_t *addr) noexcept
{
    interface_address to{};
    if (addr != nullptr) {
        memcpy(&to, addr, sizeof(to));
    }
    return (to.process == util::process_identity()) &&
           is_first_of_worker(to_iface(tl_iface));
}

ucs_status_t iface_flush(uct_iface_h tl_iface, unsigned,
                         uct_completion_t *comp) noexcept
{
    uct_gaudi_copy_iface_t *iface = to_iface(tl_iface);
    ucs_status_t status           = iface->engine->flush(nullptr, comp);
    if (status == UCS_OK) {
        UCT_TL_IFACE_STAT_FLUSH(&iface->super);
    } else {
        UCT_TL_IFACE_STAT_FLUSH_WAIT(&iface->super);
    }
    return status;
}

ucs_status_t iface_fence(uct_iface_h tl_iface, unsigned) noexcept
{
    to_iface(tl_iface)->engine->fence();
    UCT_TL_IFACE_STAT_FENCE(&to_iface(tl_iface)->super);
    return UCS_OK;
}

unsigned iface_progress(uct_iface_h tl_iface) noexcept
{
    uct_gaudi_copy_iface_t *iface = to_iface(tl_iface);
    /* UCP comes here at every progress of programs that use host memory, too.
     */
    if (iface->engine->is_idle() && ucs_queue_is_empty(&iface->pending) &&
        ucs_list_is_empty(&iface->failed)) {
        return 0;
    }
    unsigned count = iface->engine->progress();
    count += dispatch_pending(iface);
    return count + report_failures(iface);
}

ucs_status_t iface_event_fd_get(uct_iface_h tl_iface, int *fd_p) noexcept
{
    return to_iface(tl_iface)->engine->event_fd(*fd_p);
}

/* Completions are the only events, whatever the caller waits for: they are what
 * its own sends and receives hang on. */
ucs_status_t iface_event_arm(uct_iface_h tl_iface, unsigned) noexcept
{
    uct_gaudi_copy_iface_t *iface = to_iface(tl_iface);
    if (!ucs_list_is_empty(&iface->failed)) {
        return UCS_ERR_BUSY;
    }
    ucs_status_t status = iface->engine->arm();
    if ((status == UCS_OK) && !ucs_queue_is_empty(&iface->pending) &&
        iface->engine->has_resources()) {
        return UCS_ERR_BUSY;
    }
    return status;
}

void iface_close(uct_iface_h tl_iface) noexcept;

constinit uct_iface_ops_t iface_ops = {
    .ep_put_short           = ep_put_short,
    .ep_put_bcopy           = ep_put_bcopy,
    .ep_put_zcopy           = ep_put_zcopy,
    .ep_get_short           = ep_get_short,
    .ep_get_bcopy           = ep_get_bcopy,
    .ep_get_zcopy           = ep_get_zcopy,
    .ep_am_short            = unsupported<uct_ep_am_short_func_t>::op,
    .ep_am_short_iov        = unsupported<uct_ep_am_short_iov_func_t>::op,
    .ep_am_bcopy            = unsupported<uct_ep_am_bcopy_func_t>::op,
    .ep_am_zcopy            = unsupported<uct_ep_am_zcopy_func_t>::op,
    .ep_atomic_cswap64      = unsupported<uct_ep_atomic_cswap64_func_t>::op,
    .ep_atomic_cswap32      = unsupported<uct_ep_atomic_cswap32_func_t>::op,
    .ep_atomic32_post       = unsupported<uct_ep_atomic32_post_func_t>::op,
    .ep_atomic64_post       = unsupported<uct_ep_atomic64_post_func_t>::op,
    .ep_atomic32_fetch      = unsupported<uct_ep_atomic32_fetch_func_t>::op,
    .ep_atomic64_fetch      = unsupported<uct_ep_atomic64_fetch_func_t>::op,
    .ep_tag_eager_short     = unsupported<uct_ep_tag_eager_short_func_t>::op,
    .ep_tag_eager_bcopy     = unsupported<uct_ep_tag_eager_bcopy_func_t>::op,
    .ep_tag_eager_zcopy     = unsupported<uct_ep_tag_eager_zcopy_func_t>::op,
    .ep_tag_rndv_zcopy      = unsupported<uct_ep_tag_rndv_zcopy_func_t>::op,
    .ep_tag_rndv_cancel     = unsupported<uct_ep_tag_rndv_cancel_func_t>::op,
    .ep_tag_rndv_request    = unsupported<uct_ep_tag_rndv_request_func_t>::op,
    .iface_tag_recv_zcopy   = unsupported<uct_iface_tag_recv_zcopy_func_t>::op,
    .iface_tag_recv_cancel  = unsupported<uct_iface_tag_recv_cancel_func_t>::op,
    .ep_pending_add         = ep_pending_add,
    .ep_pending_purge       = ep_pending_purge,
    .ep_flush               = ep_flush,
    .ep_fence               = ep_fence,
    .ep_check               = unsupported<uct_ep_check_func_t>::op,
    .ep_create              = ep_create,
    .ep_connect             = unsupported<uct_ep_connect_func_t>::op,
    .ep_disconnect          = unsupported<uct_ep_disconnect_func_t>::op,
    .cm_ep_conn_notify      = unsupported<uct_cm_ep_conn_notify_func_t>::op,
    .ep_destroy             = ep_destroy,
    .ep_get_address         = unsupported<uct_ep_get_address_func_t>::op,
    .ep_connect_to_ep       = unsupported<uct_ep_connect_to_ep_func_t>::op,
    .iface_accept           = unsupported<uct_iface_accept_func_t>::op,
    .iface_reject           = unsupported<uct_iface_reject_func_t>::op,
    .iface_flush            = iface_flush,
    .iface_fence            = iface_fence,
    .iface_progress_enable  = uct_base_iface_progress_enable,
    .iface_progress_disable = uct_base_iface_progress_disable,
    .iface_progress         = iface_progress,
    .iface_event_fd_get     = iface_event_fd_get,
    .iface_event_arm        = iface_event_arm,
    .iface_close            = iface_close,
    .iface_query            = iface_query,
    .iface_get_device_address = iface_get_device_address,
    .iface_get_address        = iface_get_address,
    .iface_is_reachable       = iface_is_reachable,
};

void vfs_refresh(uct_iface_h) noexcept
{}

constinit uct_iface_internal_ops_t iface_internal_ops = {
    .iface_estimate_perf = estimate_perf,
    .iface_vfs_refresh   = vfs_refresh,
    .ep_query            = unsupported<uct_ep_query_func_t>::op,
    .ep_invalidate       = unsupported<uct_ep_invalidate_func_t>::op,
};

ucs_status_t query_devices(uct_md_h, uct_tl_device_resource_t **devices_p,
                           unsigned *num_devices_p) noexcept
{
    const auto cards = base::device_table::instance().cards();
    auto *devices    = static_cast<uct_tl_device_resource_t *>(
        ucs_calloc(cards.size(), sizeof(**devices_p), "gaudi devices"));
    if (devices == nullptr) {
        ucs_error("gaudi: out of host memory");
        return UCS_ERR_NO_MEMORY;
    }
    unsigned count = 0;
    for (const auto &open : cards) {
        if (open->is_lost()) {
            continue;
        }
        uct_tl_device_resource_t &device = devices[count++];
        ucs_snprintf_zero(device.name, sizeof(device.name), "%s",
                          open->name().c_str());
        device.type       = UCT_DEVICE_TYPE_ACC;
        device.sys_device = open->sys_device();
    }
    *devices_p     = devices;
    *num_devices_p = count;
    return UCS_OK;
}

} // namespace

interface_life *find_interface(const interface_address &address)
{
    interface_list &list = interfaces();
    std::lock_guard<std::mutex> guard(list.lock);
    const uct_gaudi_copy_iface_t *iface;
    ucs_list_for_each(iface, &list.head, all)
    {
        if ((iface->number == address.number) &&
            (address.process == util::process_identity())) {
            return iface->life->hold();
        }
    }
    return nullptr;
}

unsigned report_failures(uct_gaudi_copy_iface_t *iface)
{
    unsigned count = 0;
    for (; !ucs_list_is_empty(&iface->failed); ++count) {
        uct_gaudi_copy_ep_t *ep =
            ucs_list_extract_head(&iface->failed, uct_gaudi_copy_ep_t, failed);
        ucs_list_head_init(&ep->failed);
        (void)uct_iface_handle_ep_err(&iface->super.super, &ep->super.super,
                                      UCS_ERR_ENDPOINT_TIMEOUT);
    }
    return count;
}

} // namespace gaudi::copy

using namespace gaudi::copy;

static UCS_CLASS_INIT_FUNC(uct_gaudi_copy_iface_t, uct_md_h md,
                           uct_worker_h worker,
                           const uct_iface_params_t *params,
                           const uct_iface_config_t *tl_config)
{
    const auto *config = reinterpret_cast<const iface_config *>(tl_config);

    UCS_CLASS_CALL_SUPER_INIT(
        uct_base_iface_t, &iface_ops, &iface_internal_ops, md, worker, params,
        tl_config UCS_STATS_ARG(params->stats_root) UCS_STATS_ARG("gaudi_cpy"));

    (void)gaudi::base::guarded([] {
        gaudi::base::device_table::instance().look_around();
        return UCS_OK;
    });
    const char *name = params->mode.device.dev_name;
    gaudi::base::card *own =
        gaudi::base::device_table::instance().find_card(name);
    if (own == nullptr) {
        ucs_error("gaudi_cpy: there is no device '%s'", name);
        return UCS_ERR_NO_DEVICE;
    }

    std::unique_ptr<gaudi::base::transfer_engine> engine;
    std::unique_ptr<interface_life> life;
    ucs_status_t status = gaudi::base::guarded([&] {
        life = std::make_unique<interface_life>();
        return gaudi::base::transfer_engine::create(
            *own, config->transfers.options(), engine);
    });
    if (status != UCS_OK) {
        return status;
    }

    self->engine    = engine.release();
    self->max_bcopy = config->transfers.staging_chunk;
    self->bandwidth =
        config->transfers.bandwidth_or(gaudi::base::link_bandwidth(own));
    ucs_queue_head_init(&self->pending);
    ucs_list_head_init(&self->failed);
    self->life       = life.release();
    self->generation = gaudi::util::process_generation();
    add_interface(self);
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_gaudi_copy_iface_t)
{
    uct_base_iface_progress_disable(&self->super.super,
                                    UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    remove_interface(self);
    self->life->end();
    self->life->drop();
    delete self->engine;
}

UCS_CLASS_DEFINE(uct_gaudi_copy_iface_t, uct_base_iface_t)

namespace gaudi::copy {

namespace {

void iface_close(uct_iface_h tl_iface) noexcept
{
    UCS_CLASS_DELETE(uct_gaudi_copy_iface_t, tl_iface);
}

ucs_status_t iface_open(uct_md_h md, uct_worker_h worker,
                        const uct_iface_params_t *params,
                        const uct_iface_config_t *config,
                        uct_iface_h *iface_p) noexcept
{
    return UCS_CLASS_NEW(uct_gaudi_copy_iface_t, iface_p, md, worker, params,
                         config);
}

} // namespace

} // namespace gaudi::copy

extern "C" {
uct_tl_t uct_gaudi_cpy_tl = {
    .name          = "gaudi_cpy",
    .query_devices = query_devices,
    .iface_open    = iface_open,
    .config        = {.name   = "gaudi_cpy transport",
                      .prefix = "GAUDI_COPY_",
                      .table  = iface_config_table,
                      .size   = sizeof(iface_config),
                      .list   = {}},
    .list          = {},
};
}
