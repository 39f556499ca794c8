/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/side.h"

#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/kinds.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <unistd.h>

namespace peer {

context::context(const context_options &options) : how_(options.how)
{
    ucp_params_t params{};
    params.field_mask =
        UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = options.features;
    if (how_ != waiting::poll) {
        params.features |= UCP_FEATURE_WAKEUP;
    }
    params.mt_workers_shared = options.shared ? 1 : 0;

    ucp_config_t *config = nullptr;
    require(ucp_config_read(options.prefix, nullptr, &config),
            "ucp_config_read");
    options.configure(config);
    require(ucp_init(&params, config, &handle_), "ucp_init");
    ucp_config_release(config);
}

context::~context()
{
    ucp_cleanup(handle_);
}

worker::worker(context &of, ucs_thread_mode_t threads) : how_(of.how())
{
    ucp_worker_params_t params{};
    params.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = threads;
    require(ucp_worker_create(of.get(), &params, &handle_),
            "ucp_worker_create");

    ucp_worker_attr_t attr{};
    attr.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE;
    require(ucp_worker_query(handle_, &attr), "ucp_worker_query");
    if (attr.thread_mode < threads) {
        die("worker", "this UCX cannot share it among threads");
    }
    if (how_ == waiting::event_fd) {
        require(ucp_worker_get_efd(handle_, &event_fd_), "ucp_worker_get_efd");
    }
}

worker::~worker()
{
    ucp_worker_destroy(handle_);
}

std::vector<char> worker::address() const
{
    ucp_worker_attr_t attr{};
    attr.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    require(ucp_worker_query(handle_, &attr), "ucp_worker_query");
    const char *bytes = reinterpret_cast<const char *>(attr.address);
    std::vector<char> result(bytes, bytes + attr.address_length);
    ucp_worker_release_address(handle_, attr.address);
    return result;
}

void worker::step()
{
    if (!progress()) {
        usleep(20); /* see util::nap */
    }
}

void worker::rest(int fd)
{
    if ((how_ == waiting::worker_wait) && (fd < 0)) {
        require(ucp_worker_wait(handle_), "ucp_worker_wait");
    } else if (how_ == waiting::event_fd) {
        const ucs_status_t status = ucp_worker_arm(handle_);
        if (status == UCS_ERR_BUSY) {
            return;
        }
        require(status, "ucp_worker_arm");
        pollfd events[] = {{event_fd_, POLLIN, 0}, {fd, POLLIN, 0}};
        if ((poll(events, 2, -1) < 0) && (errno != EINTR)) {
            die("poll", std::strerror(errno));
        }
    } else {
        usleep(20); /* see util::nap */
    }
}

operation::operation(ucs_status_ptr_t request, const char *what,
                     std::shared_ptr<const void> kept)
{
    if (UCS_PTR_IS_ERR(request)) {
        require(UCS_PTR_STATUS(request), what);
    }
    done_ = [request, what, kept = std::move(kept)]() mutable {
        if (request == nullptr) {
            return true;
        }
        const ucs_status_t status = ucp_request_check_status(request);
        if (status == UCS_INPROGRESS) {
            return false;
        }
        ucp_request_free(request);
        request = nullptr;
        require(status, what);
        return true;
    };
}

void finish(operation what, const std::vector<worker *> &workers)
{
    while (!what.done()) {
        const auto busy =
            std::count_if(workers.begin(), workers.end(),
                          [](worker *one) { return one->progress(); });
        if ((busy == 0) && !what.done()) {
            workers.front()->rest();
        }
    }
}

void finish(ucs_status_ptr_t request, const char *what,
            const std::vector<worker *> &workers)
{
    finish(operation(request, what), workers);
}

ucs_status_t end_of(ucs_status_ptr_t request, worker &of,
                    std::chrono::milliseconds time)
{
    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    const auto end = std::chrono::steady_clock::now() + time;
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        if (std::chrono::steady_clock::now() > end) {
            return status;
        }
        of.step();
    }
    ucp_request_free(request);
    return status;
}

char await_letter(worker &of, const channel &from)
{
    char letter = 0;
    while (!from.try_hear(letter)) {
        of.step();
    }
    return letter;
}

ucs_status_t connect(const worker &of, const std::vector<char> &address,
                     bool errors, ucp_err_handler_t handler, ucp_ep_h &ep_p)
{
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    if (handler.cb != nullptr) {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
    }
    params.address = reinterpret_cast<const ucp_address_t *>(address.data());
    params.err_mode =
        errors ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    params.err_handler = handler;
    return ucp_ep_create(of.get(), &params, &ep_p);
}

ucs_status_ptr_t disconnect(ucp_ep_h ep, bool force)
{
    ucp_request_param_t params{};
    if (force) {
        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        params.flags        = UCP_EP_CLOSE_FLAG_FORCE;
    }
    return ucp_ep_close_nbx(ep, &params);
}

listener::listener(worker &of) : of_(of)
{
    sockaddr_in any{};
    any.sin_family      = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                        UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr.addr    = reinterpret_cast<const sockaddr *>(&any);
    params.sockaddr.addrlen = sizeof(any);
    params.conn_handler.cb  = [](ucp_conn_request_h request, void *arg) {
        static_cast<listener *>(arg)->request_ = request;
    };
    params.conn_handler.arg = this;
    require(ucp_listener_create(of.get(), &params, &handle_),
            "ucp_listener_create");
}

listener::~listener()
{
    ucp_listener_destroy(handle_);
}

sockaddr_in listener::address() const
{
    ucp_listener_attr_t attr{};
    attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    require(ucp_listener_query(handle_, &attr), "ucp_listener_query");
    sockaddr_in result;
    std::memcpy(&result, &attr.sockaddr, sizeof(result));
    return result;
}

ucp_conn_request_h listener::accept()
{
    finish(operation([this] { return request_ != nullptr; }), {&of_});
    return std::exchange(request_, nullptr);
}

side::side(worker &of, unsigned number, const std::vector<char> &address,
           bool errors)
    : of_(of), number_(number), errors_(errors), mail_(make_mailbox(of, number))
{
    require(connect(of, address, errors, {on_error, this}, ep_),
            "ucp_ep_create");
}

side::side(worker &of, unsigned number, const sockaddr_in &address, bool errors)
    : of_(of), number_(number), errors_(errors), mail_(make_mailbox(of, number))
{
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
    params.sockaddr.addr    = reinterpret_cast<const sockaddr *>(&address);
    params.sockaddr.addrlen = sizeof(address);
    params.flags            = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    open(params);
}

side::side(worker &of, unsigned number, ucp_conn_request_h request, bool errors)
    : of_(of), number_(number), errors_(errors), mail_(make_mailbox(of, number))
{
    ucp_ep_params_t params{};
    params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    open(params);
}

void side::open(ucp_ep_params_t &params)
{
    params.field_mask |=
        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode =
        errors_ ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    params.err_handler = {on_error, this};
    require(ucp_ep_create(of_.get(), &params, &ep_), "ucp_ep_create");
}

side::~side() = default;

void side::on_error(void *arg, ucp_ep_h, ucs_status_t status)
{
    if (!static_cast<side *>(arg)->closing_) {
        die("endpoint", ucs_status_string(status));
    }
}

operation side::close()
{
    closing_                 = true;
    ucs_status_ptr_t request = disconnect(ep_, false);
    if (!errors_) {
        return operation(request, "ucp_ep_close_nbx");
    }
    /* The other side may be done, and away, before. */
    return operation([request]() mutable {
        if (!UCS_PTR_IS_PTR(request)) {
            return true;
        }
        if (ucp_request_check_status(request) == UCS_INPROGRESS) {
            return false;
        }
        ucp_request_free(request);
        request = nullptr;
        return true;
    });
}

} // namespace peer
