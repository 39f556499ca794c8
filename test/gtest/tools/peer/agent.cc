/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/agent.h"

#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/memory.h"
#include "gtest/tools/release.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace peer {

namespace {

constexpr unsigned notification_id = 0;

/* A variable of the environment decides where there is one. */
void modify(ucp_config_t *config, const char *name, const char *value)
{
    if (getenv((std::string("UCX_") + name).c_str()) == nullptr) {
        require(ucp_config_modify(config, name, value), name);
    }
}

/* What this UCX does not have would be a warning. */
void configure(ucp_config_t *config)
{
    modify(config, "RNDV_THRESH", "inf");
    if (!gaudi::test::ucx_is_before(1, 14)) {
        modify(config, "MAX_RMA_RAILS", "2");
    }
    if (!gaudi::test::ucx_is_before(1, 22)) {
        modify(config, "RNDV_PIPELINE_ERROR_HANDLING", "y");
    }
}

} // namespace

/* --- agent ---------------------------------------------------------------- */

agent::agent(const agent_options &options)
    : options_(options),
      context_(
          {.shared = (options.workers > 1),
           .how = options.progress_thread ? waiting::event_fd : waiting::poll,
           .features = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 |
                       UCP_FEATURE_AM,
           .configure = configure})
{
    for (unsigned i = 0; i < options_.workers; ++i) {
        workers_.push_back(std::make_unique<peer::worker>(
            context_, options_.progress_thread ? UCS_THREAD_MODE_MULTI
                                               : UCS_THREAD_MODE_SERIALIZED));
    }
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                        UCP_AM_HANDLER_PARAM_FIELD_CB |
                        UCP_AM_HANDLER_PARAM_FIELD_ARG;
    params.id  = notification_id;
    params.cb  = on_notification;
    params.arg = this;
    require(ucp_worker_set_am_recv_handler(worker(0), &params),
            "ucp_worker_set_am_recv_handler");
    if (options_.progress_thread) {
        start_thread();
    }
}

agent::~agent()
{
    if (thread_.joinable()) {
        const uint64_t one = 1;
        if (write(stop_fd_, &one, sizeof(one)) != sizeof(one)) {
            die("eventfd", std::strerror(errno));
        }
        thread_.join();
        close(stop_fd_);
    }
}

void agent::progress()
{
    for (const auto &one : workers_) {
        while (one->progress()) {}
    }
}

void agent::start_thread()
{
    stop_fd_ = eventfd(0, EFD_CLOEXEC);
    if (stop_fd_ < 0) {
        die("eventfd", std::strerror(errno));
    }
    thread_ = std::thread([this] { run(); });
}

/* Unlike NIXL's thread it never wakes by itself: a wakeup that is lost is a
 * test that does not end. */
void agent::run()
{
    set_case("the progress thread");
    std::vector<pollfd> events;
    for (const auto &one : workers_) {
        events.push_back({one->event_fd(), POLLIN, POLLIN});
    }
    events.push_back({stop_fd_, POLLIN, 0});
    while ((events.back().revents & POLLIN) == 0) {
        for (size_t i = 0; i < workers_.size(); ++i) {
            if ((events[i].revents & POLLIN) == 0) {
                continue;
            }
            ucs_status_t status = UCS_OK;
            do {
                while (workers_[i]->progress()) {}
                status = ucp_worker_arm(worker(i));
            } while (status == UCS_ERR_BUSY);
            require(status, "ucp_worker_arm");
        }
        if ((poll(events.data(), events.size(), -1) < 0) && (errno != EINTR)) {
            die("poll", std::strerror(errno));
        }
    }
}

ucs_status_t agent::on_notification(void *arg, const void *,
                                    size_t header_length, void *data,
                                    size_t length,
                                    const ucp_am_recv_param_t *param)
{
    auto *self = static_cast<agent *>(arg);
    if (((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) ||
        (header_length != 0)) {
        die("a notification", "does not come as it was sent");
    }
    const std::lock_guard<std::mutex> lock(self->mutex_);
    self->notifications_.emplace_back(static_cast<const char *>(data), length);
    self->came_.notify_one();
    return UCS_OK;
}

std::string agent::await_notification()
{
    std::unique_lock<std::mutex> lock(mutex_);
    if (thread_.joinable()) {
        came_.wait(lock, [this] { return !notifications_.empty(); });
    }
    while (notifications_.empty()) {
        lock.unlock();
        progress();
        usleep(20); /* see util::nap */
        lock.lock();
    }
    std::string result = std::move(notifications_.front());
    notifications_.pop_front();
    return result;
}

/* --- connection ----------------------------------------------------------- */

connection::connection(agent &of, const std::vector<char> &address) : of_(of)
{
    for (size_t i = 0; i < of_.workers(); ++i) {
        auto one = std::make_unique<end>();
        require(connect(*of_.workers_[i], address, of_.options_.peer_errors,
                        {on_error, one.get()}, one->ep),
                "ucp_ep_create");
        ends_.push_back(std::move(one));
    }
}

/* An endpoint that has failed is closed at once, from its own callback. */
void connection::on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    auto *one  = static_cast<end *>(arg);
    one->error = status;
    if (one->closed.exchange(true)) {
        return;
    }
    ucs_status_ptr_t request = disconnect(ep, true);
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

ucp_ep_h connection::ep(size_t worker) const
{
    if (error(worker) != UCS_OK) {
        die("the endpoint", ucs_status_string(error(worker)));
    }
    return ends_[worker]->ep;
}

connection::~connection()
{
    for (const auto &one : ends_) {
        if (one->closed.exchange(true)) {
            continue;
        }
        /* Nobody waits until it is closed: the worker may go before. */
        ucs_status_ptr_t request = disconnect(one->ep, false);
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
    }
}

void connection::notify(const std::string &text, size_t worker)
{
    auto *copy = new std::string(text);
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                          UCP_OP_ATTR_FIELD_USER_DATA;
    params.flags     = UCP_AM_SEND_FLAG_EAGER;
    params.user_data = copy;
    params.cb.send   = [](void *request, ucs_status_t status, void *user_data) {
        require(status, "a notification");
        delete static_cast<std::string *>(user_data);
        ucp_request_free(request);
    };
    ucs_status_ptr_t request =
        ucp_am_send_nbx(ep(worker), notification_id, nullptr, 0, copy->data(),
                        copy->size(), &params);
    if (!UCS_PTR_IS_PTR(request)) {
        require(UCS_PTR_STATUS(request), "ucp_am_send_nbx");
        delete copy;
    }
}

double connection::estimate(size_t size) const
{
    ucp_ep_evaluate_perf_param_t params{};
    params.field_mask   = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE;
    params.message_size = size;
    ucp_ep_evaluate_perf_attr_t attr{};
    attr.field_mask = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME;
    require(ucp_ep_evaluate_perf(ep(0), &params, &attr),
            "ucp_ep_evaluate_perf");
    return attr.estimated_time;
}

/* --- segment -------------------------------------------------------------- */

segment::segment(const agent &of, void *data, size_t size, bool is_device)
    : of_(of)
{
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                        UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                        UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
    params.address = data;
    params.length  = size;
    require(ucp_mem_map(of_.context(), &params, &handle_), "ucp_mem_map");

    ucp_mem_attr_t attr{};
    attr.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE;
    require(ucp_mem_query(handle_, &attr), "ucp_mem_query");
    if ((attr.mem_type != UCS_MEMORY_TYPE_HOST) != is_device) {
        die(is_device ? "device memory" : "host memory", "is taken for other");
    }
    key_ = pack_key(of_.context(), handle_);
}

segment::~segment()
{
    require(ucp_mem_unmap(of_.context(), handle_), "ucp_mem_unmap");
}

/* --- transfer ------------------------------------------------------------- */

ucs_status_t transfer::keep(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        requests_.push_back(request);
        return UCS_OK;
    }
    return UCS_PTR_STATUS(request);
}

#ifdef ucp_dt_make_sgl
ucs_status_ptr_t transfer::start_all(direction what,
                                     std::span<const block> list)
{
    arrays_ = {};
    for (const block &one : list) {
        arrays_.buffers.push_back(one.local);
        arrays_.lengths.push_back(one.size);
        arrays_.handles.push_back(one.local_segment->handle());
        arrays_.addresses.push_back(one.remote);
        arrays_.keys.push_back((*one.of_remote)[worker_]->key());
    }
    ucp_dt_local_sgl_t here{};
    here.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS |
                      UCP_DT_LOCAL_SGL_FIELD_LENGTHS |
                      UCP_DT_LOCAL_SGL_FIELD_MEMHS;
    here.buffers = arrays_.buffers.data();
    here.lengths = arrays_.lengths.data();
    here.memhs   = arrays_.handles.data();
    ucp_dt_remote_sgl_t there{};
    there.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS |
                       UCP_DT_REMOTE_SGL_FIELD_LENGTHS |
                       UCP_DT_REMOTE_SGL_FIELD_RKEYS;
    there.remote_addrs = arrays_.addresses.data();
    there.lengths      = arrays_.lengths.data();
    there.rkeys        = arrays_.keys.data();
    ucp_request_param_t params{};
    params.op_attr_mask =
        UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE |
        UCP_OP_ATTR_FIELD_REMOTE | UCP_OP_ATTR_FIELD_REMOTE_COUNT;
    params.datatype        = ucp_dt_make_sgl();
    params.remote_datatype = ucp_dt_make_sgl();
    params.remote          = &there;
    params.remote_count    = list.size();
    ucp_ep_h ep            = by_.ep(worker_);
    return (what == direction::put)
               ? ucp_put_nbx(ep, &here, list.size(), UCP_REMOTE_ADDR_INVALID,
                             UCP_RKEY_INVALID, &params)
               : ucp_get_nbx(ep, &here, list.size(), UCP_REMOTE_ADDR_INVALID,
                             UCP_RKEY_INVALID, &params);
}
#endif

ucs_status_t transfer::post(direction what, std::span<const block> list)
{
    ucs_status_ptr_t last = nullptr;
    ucs_status_t status   = UCS_OK;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FLAG_MULTI_SEND;
#ifdef ucp_dt_make_sgl
    if (by_.of().options().lists && starts_lists(what)) {
        last   = start_all(what, list);
        status = UCS_PTR_IS_ERR(last) ? UCS_PTR_STATUS(last) : UCS_OK;
        last   = UCS_PTR_IS_PTR(last) ? last : nullptr;
        list   = {};
    }
#endif
    for (const block &one : list) {
        params.memh    = one.local_segment->handle();
        ucp_ep_h ep    = by_.ep(worker_);
        ucp_rkey_h key = (*one.of_remote)[worker_]->key();
        const ucs_status_ptr_t request =
            (what == direction::put)
                ? ucp_put_nbx(ep, one.local, one.size, one.remote, key, &params)
                : ucp_get_nbx(ep, one.local, one.size, one.remote, key,
                              &params);
        if (UCS_PTR_IS_PTR(request)) {
            /* The flush waits for those that nobody remembers. */
            if (last != nullptr) {
                ucp_request_free(last);
            }
            last = request;
        } else if (UCS_PTR_IS_ERR(request)) {
            status = UCS_PTR_STATUS(request);
            break;
        }
    }
    if (status != UCS_OK) {
        if (last != nullptr) {
            ucp_request_free(last);
        }
        return status;
    }
    (void)keep(last);
    const ucp_request_param_t defaults{};
    status = keep(ucp_ep_flush_nbx(by_.ep(worker_), &defaults));
    if (status != UCS_OK) {
        release();
        return status;
    }
    return check();
}

ucs_status_t transfer::check()
{
    if (requests_.empty()) {
        return UCS_OK;
    }
    while (ucp_worker_progress(by_.of().worker(worker_)) != 0) {}
    ucs_status_t result = ucp_request_check_status(requests_.back());
    if (result != UCS_OK) {
        return result;
    }
    std::vector<ucs_status_ptr_t> rest;
    for (ucs_status_ptr_t request : requests_) {
        const ucs_status_t status = ucp_request_check_status(request);
        if (status == UCS_OK) {
            ucp_request_free(request);
        } else {
            result = status;
            rest.push_back(request);
        }
    }
    requests_.swap(rest);
    return result;
}

ucs_status_t transfer::wait()
{
    ucs_status_t status = UCS_OK;
    while ((status = check()) == UCS_INPROGRESS) {
        usleep(20); /* see util::nap */
    }
    return status;
}

ucs_status_t transfer::run(direction what, std::span<const block> list)
{
    const ucs_status_t status = post(what, list);
    return (status == UCS_INPROGRESS) ? wait() : status;
}

void transfer::release()
{
    for (ucs_status_ptr_t request : requests_) {
        if (ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_request_cancel(by_.of().worker(worker_), request);
        }
        ucp_request_free(request);
    }
    requests_.clear();
}

} // namespace peer
