#include "uct/gaudi/ipc/ipc_iface.h"

#include "uct/gaudi/base/transfer/transfer_config.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/unsupported.h"
#include "uct/gaudi/ipc/ipc_md.h"
#include "uct/gaudi/ipc/sharing/invalidation.h"
#include "util/process.h"

#include <climits>
#include <cstring>

extern "C" {
#include <ucs/time/time.h>
}

#include <sys/epoll.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

using base::unsupported;

struct iface_config {
    uct_iface_config_t super;
    base::transfer_config transfers;
    size_t fifo_size;
    size_t seg_size;
    unsigned max_poll;
};

ucs_config_field_t iface_config_table[] = {
    {"", "", nullptr, offsetof(iface_config, super),
     UCS_CONFIG_TYPE_TABLE(uct_iface_config_table)},

    {"", "", nullptr, offsetof(iface_config, transfers),
     UCS_CONFIG_TYPE_TABLE(base::transfer_config_table)},

    {"FIFO_SIZE", "64k",
     "Size of the queue of active messages that each interface has at another\n"
     "one that it sends to.",
     offsetof(iface_config, fifo_size), UCS_CONFIG_TYPE_MEMUNITS},

    {"SEG_SIZE", "8256", "Longest active message.",
     offsetof(iface_config, seg_size), UCS_CONFIG_TYPE_MEMUNITS},

    {"FIFO_MAX_POLL", "16",
     "Number of active messages that one call of progress delivers.",
     offsetof(iface_config, max_poll), UCS_CONFIG_TYPE_UINT},

    {nullptr, nullptr, nullptr, 0, {}}};

/* An active message between two processes, seconds. UCX's own shared-memory
 * transports say 80 ns: where they are allowed, UCP is to take them, since a
 * fence costs this one a little more. */
constexpr double message_latency  = 100e-9;
constexpr double message_overhead = 15e-9;

/* Two copies of the CPU at once, bytes/second; as UCX's own transports. */
constexpr double message_bandwidth = 12000.0 * (1 << 20);

/* Submission and completion of one job on a card, seconds. An estimate: the
 * figure was not measured on hardware. */
constexpr double job_latency = 4e-6;

/* UCP ends the process when a packed key, with those of all other transports,
 * does not fit in a message, bytes. */
constexpr size_t least_seg_size = 1024;

/* Progress calls from one look at the clock to the next; seconds from one look
 * whether peers are alive to the next, and how much later it is at most when
 * messages keep coming. */
constexpr unsigned polls_per_look = 16;
constexpr double look_interval    = 0.01;
constexpr double look_delay       = 0.1;

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

bool is_message(uct_ep_operation_t operation)
{
    return (operation == UCT_EP_OP_AM_SHORT) ||
           (operation == UCT_EP_OP_AM_BCOPY);
}

bool is_inherited(const uct_gaudi_ipc_iface_t *iface)
{
    return iface->state->generation != util::process_generation();
}

ucs_status_t iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr) noexcept
{
    uct_gaudi_ipc_iface_t *iface = to_iface(tl_iface);

    uct_base_iface_query(&iface->super, attr);
    attr->device_addr_len = sizeof(machine_address);
    attr->iface_addr_len  = sizeof(wire_mailbox_address);
    attr->cap.flags       = UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                      UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY |
                      UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_SHORT |
                      UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY |
                      UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY |
                      UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_PENDING |
                      UCT_IFACE_FLAG_EP_CHECK |
                      UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    attr->cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP |
                            UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD;

    attr->cap.put.max_short       = UINT_MAX;
    attr->cap.put.max_bcopy       = iface->state->max_bcopy;
    attr->cap.put.min_zcopy       = 0;
    attr->cap.put.max_zcopy       = SIZE_MAX;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;
    attr->cap.put.max_iov         = 1;

    attr->cap.get.max_short       = UINT_MAX;
    attr->cap.get.max_bcopy       = iface->state->max_bcopy;
    attr->cap.get.min_zcopy       = 0;
    attr->cap.get.max_zcopy       = SIZE_MAX;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;
    attr->cap.get.max_iov         = 1;

    attr->cap.am.max_short       = iface->state->max_message;
    attr->cap.am.max_bcopy       = iface->state->max_message;
    attr->cap.am.opt_zcopy_align = 1;
    attr->cap.am.align_mtu       = 1;
    attr->cap.am.max_iov         = SIZE_MAX;

    attr->latency             = ucs_linear_func_make(message_latency, 0);
    attr->bandwidth.dedicated = 0;
    attr->bandwidth.shared    = iface->state->bandwidth;
    attr->overhead            = message_overhead;
    attr->priority            = 0;
    return UCS_OK;
}

ucs_status_t estimate_perf(uct_iface_h tl_iface, uct_perf_attr_t *attr) noexcept
{
    const iface_state &state = *to_iface(tl_iface)->state;
    const uint64_t fields    = attr->field_mask;
    const bool one           = (fields & UCT_PERF_ATTR_FIELD_OPERATION) != 0;
    const bool message       = one && is_message(attr->operation);

    if (fields & UCT_PERF_ATTR_FIELD_BANDWIDTH) {
        attr->bandwidth.dedicated = message ? message_bandwidth : 0;
        attr->bandwidth.shared =
            message ? 0
                    : state.bandwidth * (one ? efficiency(attr->operation) : 1);
    }
    if (fields & UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD) {
        attr->send_pre_overhead = message ? message_overhead : 0;
    }
    if (fields & UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD) {
        attr->send_post_overhead = 0;
    }
    if (fields & UCT_PERF_ATTR_FIELD_RECV_OVERHEAD) {
        /* 0 for put and get: UCP asserts it. */
        attr->recv_overhead = message ? message_overhead : 0;
    }
    if (fields & UCT_PERF_ATTR_FIELD_LATENCY) {
        const bool job = one && !message;
        attr->latency =
            ucs_linear_func_make(job ? job_latency : message_latency, 0);
    }
    if (fields & UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS) {
        attr->max_inflight_eps = SIZE_MAX;
    }
    return UCS_OK;
}

ucs_status_t iface_get_device_address(uct_iface_h,
                                      uct_device_addr_t *addr) noexcept
{
    return base::guarded([&] {
        const machine_address own = own_machine();
        memcpy(addr, &own, sizeof(own));
        return UCS_OK;
    });
}

ucs_status_t iface_get_address(uct_iface_h tl_iface,
                               uct_iface_addr_t *addr) noexcept
{
    const wire_mailbox_address own =
        to_wire(to_iface(tl_iface)->state->inbox->address());
    memcpy(addr, &own, sizeof(own));
    return UCS_OK;
}

/* Whether we could connect. The kernel may forbid what addresses promise.
 * Nobody is asked: UCP calls this from progress, for peers that may be stopped.
 */
ucs_status_t probe(const machine_address &machine, const mailbox_address &to)
{
    const std::string why = why_unreachable(machine);
    if (!why.empty()) {
        ucs_debug("gaudi_ipc: process %u is not reachable: %s", to.process.pid,
                  why.c_str());
        return UCS_ERR_UNREACHABLE;
    }
    std::shared_ptr<remote_process> process;
    ucs_status_t status = remote_process::open(to.process, process);
    return (status == UCS_OK) ? process->probe_file(to.file) : status;
}

int iface_is_reachable(const uct_iface_h, const uct_device_addr_t *dev_addr,
                       const uct_iface_addr_t *iface_addr) noexcept
{
    if ((dev_addr == nullptr) || (iface_addr == nullptr)) {
        return 0;
    }
    machine_address machine;
    wire_mailbox_address to;
    memcpy(&machine, dev_addr, sizeof(machine));
    memcpy(&to, iface_addr, sizeof(to));
    const ucs_status_t status =
        base::guarded([&] { return probe(machine, from_wire(to)); });
    /* Without room for a descriptor it is not known, and ends in an error:
     * unreachable memory would be touched by the CPU. */
    return (status == UCS_OK) || (status == UCS_ERR_NO_RESOURCE);
}

ucs_status_t iface_flush(uct_iface_h tl_iface, unsigned,
                         uct_completion_t *comp) noexcept
{
    uct_gaudi_ipc_iface_t *iface = to_iface(tl_iface);
    if (!ucs_arbiter_is_empty(&iface->pending)) {
        /* UCP takes the second for a failure, and asks without a completion. */
        return (comp == nullptr) ? UCS_INPROGRESS : UCS_ERR_NO_RESOURCE;
    }
    ucs_status_t status = iface->state->engine->flush(nullptr, comp);
    if (status == UCS_OK) {
        UCT_TL_IFACE_STAT_FLUSH(&iface->super);
    } else {
        UCT_TL_IFACE_STAT_FLUSH_WAIT(&iface->super);
    }
    return status;
}

ucs_status_t iface_fence(uct_iface_h tl_iface, unsigned) noexcept
{
    to_iface(tl_iface)->state->engine->fence();
    UCT_TL_IFACE_STAT_FENCE(&to_iface(tl_iface)->super);
    return UCS_OK;
}

ucs_arbiter_cb_result_t check_one(ucs_arbiter_t *, ucs_arbiter_group_t *group,
                                  ucs_arbiter_elem_t *, void *) noexcept
{
    auto *ep = ucs_container_of(group, uct_gaudi_ipc_ep_t, pending);
    (void)ep_check(&ep->super.super, 0, nullptr);
    return UCS_ARBITER_CB_RESULT_RESCHED_GROUP;
}

/* Now and then: what costs system calls. A request that waits for a peer that
 * was killed would wait for good. What a peer sent before its end comes first.
 */
unsigned look_around(uct_gaudi_ipc_iface_t *iface, bool inbox_is_empty)
{
    const ucs_time_t now    = ucs_get_time();
    const ucs_time_t due    = iface->state->next_look;
    const ucs_time_t at_all = due + ucs_time_from_sec(look_delay);
    iface->state->polls     = 0;
    if (now < (inbox_is_empty ? due : at_all)) {
        return has_invalidations() ? progress_invalidations() : 0;
    }
    iface->state->next_look = now + ucs_time_from_sec(look_interval);
    ucs_arbiter_dispatch(&iface->pending, 1, check_one, nullptr);
    find_lost_peers(iface);
    return progress_invalidations();
}

unsigned iface_progress(uct_iface_h tl_iface) noexcept
{
    uct_gaudi_ipc_iface_t *iface = to_iface(tl_iface);
    iface_state &state           = *iface->state;
    if (ucs_unlikely(is_inherited(iface))) {
        return 0;
    }

    unsigned count = state.inbox->poll(
        state.max_poll, [&](uint8_t id, void *data, size_t length) {
            if (ucs_likely(id < UCT_AM_ID_MAX)) {
                (void)uct_iface_invoke_am(&iface->super, id, data,
                                          static_cast<unsigned>(length), 0);
            }
        });
    const bool inbox_is_empty = (count == 0);
    if (!state.engine->is_idle()) {
        count += state.engine->progress();
    }
    if (ucs_unlikely(++state.polls >= polls_per_look)) {
        count += look_around(iface, inbox_is_empty);
    }
    if (!ucs_arbiter_is_empty(&iface->pending)) {
        count += dispatch_pending(iface);
    }
    if (ucs_unlikely(!ucs_list_is_empty(&state.failed))) {
        count += report_failures(iface);
    }
    return count;
}

bool add_event(int epoll_fd, int fd)
{
    epoll_event event{};
    event.events = EPOLLIN;
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* One descriptor for messages, and for the ends of transfers and of peers. */
ucs_status_t iface_event_fd_get(uct_iface_h tl_iface, int *fd_p) noexcept
{
    iface_state &state = *to_iface(tl_iface)->state;
    if (state.event_fd < 0) {
        int transfers;
        ucs_status_t status = state.engine->event_fd(transfers);
        if (status != UCS_OK) {
            return status;
        }
        const int both = epoll_create1(EPOLL_CLOEXEC);
        if ((both < 0) || !add_event(both, transfers) ||
            !add_event(both, state.inbox->event_fd()) ||
            !add_event(both, state.ended_fd)) {
            ucs_error("gaudi_ipc: no event descriptor: %m");
            if (both >= 0) {
                close(both);
            }
            return UCS_ERR_IO_ERROR;
        }
        state.event_fd = both;
    }
    *fd_p = state.event_fd;
    return UCS_OK;
}

/* Whatever the caller waits for: its sends hang on messages of the peer, too. A
 * request that waits for room in a peer's mailbox gets no event, nor does an
 * invalidation that waits for others, so while there is one the caller has to
 * go on making progress. */
ucs_status_t iface_event_arm(uct_iface_h tl_iface, unsigned) noexcept
{
    uct_gaudi_ipc_iface_t *iface = to_iface(tl_iface);
    if (is_inherited(iface)) {
        return UCS_OK;
    }
    if (!ucs_arbiter_is_empty(&iface->pending) ||
        !ucs_list_is_empty(&iface->state->failed) ||
        (progress_invalidations() > 0) || has_invalidations()) {
        return UCS_ERR_BUSY;
    }
    ucs_status_t status = iface->state->engine->arm();
    if (status == UCS_OK) {
        status = iface->state->inbox->arm() ? UCS_OK : UCS_ERR_BUSY;
    }
    if (status == UCS_OK) {
        find_lost_peers(iface); /* whose messages have been delivered */
        status =
            ucs_list_is_empty(&iface->state->failed) ? UCS_OK : UCS_ERR_BUSY;
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
    .ep_am_short            = ep_am_short,
    .ep_am_short_iov        = ep_am_short_iov,
    .ep_am_bcopy            = ep_am_bcopy,
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
    .ep_check               = ep_check,
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

/* One device for the machine, in a process without a card, too. */
ucs_status_t query_devices(uct_md_h md, uct_tl_device_resource_t **devices_p,
                           unsigned *num_devices_p) noexcept
{
    return uct_single_device_resource(md, "gaudi", UCT_DEVICE_TYPE_SHM,
                                      UCS_SYS_DEVICE_ID_UNKNOWN, devices_p,
                                      num_devices_p);
}

base::card *first_card()
{
    for (const auto &open : base::device_table::instance().cards()) {
        if (!open->is_lost()) {
            return open.get();
        }
    }
    return nullptr;
}

ucs_status_t make_state(const iface_config &config,
                        std::unique_ptr<iface_state> &state_p)
{
    mailbox_options options;
    options.fifo_size = config.fifo_size;
    if ((config.seg_size < least_seg_size) ||
        (config.seg_size > connection::max_payload)) {
        ucs_error("gaudi_ipc: SEG_SIZE=%zu is not between %zu and %zu",
                  config.seg_size, least_seg_size, connection::max_payload);
        return UCS_ERR_INVALID_PARAM;
    }
    auto state         = std::make_unique<iface_state>();
    state->home        = state->cards.join() ? first_card() : nullptr;
    state->max_message = config.seg_size;
    state->max_bcopy   = config.transfers.staging_chunk;
    state->max_poll    = std::max(config.max_poll, 1u);
    state->bandwidth =
        config.transfers.bandwidth_or(base::link_bandwidth(state->home));
    ucs_list_head_init(&state->endpoints);
    ucs_list_head_init(&state->failed);
    state->ended_fd = epoll_create1(EPOLL_CLOEXEC);
    if (state->ended_fd < 0) {
        ucs_error("gaudi_ipc: no descriptor to watch peers with: %m");
        return UCS_ERR_IO_ERROR;
    }
    base::transfer_options transfers = config.transfers.options();
    transfers.remember_host          = true;
    ucs_status_t status =
        (state->home != nullptr)
            ? base::transfer_engine::create(*state->home, transfers,
                                            state->engine)
            : base::transfer_engine::create(transfers, state->engine);
    if (status == UCS_OK) {
        status = mailbox::create(options, state->inbox);
    }
    if (status == UCS_OK) {
        state->invalidations = open_invalidations();
        state_p              = std::move(state);
    }
    return status;
}

} // namespace

iface_state::~iface_state()
{
    if ((invalidations != 0) && (generation == util::process_generation())) {
        close_invalidations(invalidations);
    }
    for (const int fd : {event_fd, ended_fd}) {
        if (fd >= 0) {
            close(fd);
        }
    }
}

} // namespace gaudi::ipc

using namespace gaudi::ipc;

static UCS_CLASS_INIT_FUNC(uct_gaudi_ipc_iface_t, uct_md_h md,
                           uct_worker_h worker,
                           const uct_iface_params_t *params,
                           const uct_iface_config_t *tl_config)
{
    const auto *config = reinterpret_cast<const iface_config *>(tl_config);

    UCS_CLASS_CALL_SUPER_INIT(
        uct_base_iface_t, &iface_ops, &iface_internal_ops, md, worker, params,
        tl_config UCS_STATS_ARG(params->stats_root) UCS_STATS_ARG("gaudi_ipc"));

    std::unique_ptr<iface_state> state;
    ucs_status_t status = gaudi::base::guarded([&] {
        gaudi::base::device_table::instance().look_around();
        return make_state(*config, state);
    });
    if (status != UCS_OK) {
        return status;
    }
    self->state = state.release();
    ucs_arbiter_init(&self->pending);
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_gaudi_ipc_iface_t)
{
    uct_base_iface_progress_disable(&self->super.super,
                                    UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    ucs_arbiter_cleanup(&self->pending);
    delete self->state;
}

UCS_CLASS_DEFINE(uct_gaudi_ipc_iface_t, uct_base_iface_t)

namespace gaudi::ipc {

namespace {

void iface_close(uct_iface_h tl_iface) noexcept
{
    UCS_CLASS_DELETE(uct_gaudi_ipc_iface_t, tl_iface);
}

ucs_status_t iface_open(uct_md_h md, uct_worker_h worker,
                        const uct_iface_params_t *params,
                        const uct_iface_config_t *config,
                        uct_iface_h *iface_p) noexcept
{
    return UCS_CLASS_NEW(uct_gaudi_ipc_iface_t, iface_p, md, worker, params,
                         config);
}

} // namespace

} // namespace gaudi::ipc

extern "C" {
uct_tl_t uct_gaudi_ipc_tl = {
    .name          = "gaudi_ipc",
    .query_devices = query_devices,
    .iface_open    = iface_open,
    .config        = {.name   = "gaudi_ipc transport",
                      .prefix = "GAUDI_IPC_",
                      .table  = iface_config_table,
                      .size   = sizeof(iface_config),
                      .list   = {}},
    .list          = {},
};
}
