#include "gtest/tools/peer/agent.h"

#include <sched.h>

namespace peer {

ucs_status_t transfer::keep(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        requests_.push_back(request);
        return UCS_OK;
    }
    return UCS_PTR_STATUS(request);
}

ucs_status_t transfer::post(direction what, std::span<const block> list)
{
    ucs_status_ptr_t last = nullptr;
    ucs_status_t status   = UCS_OK;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FLAG_MULTI_SEND;
    for (const block &one : list) {
        params.memh = one.local_segment->handle();
        ucp_ep_h ep = by_.ep(worker_);
        const ucs_status_ptr_t request =
            (what == direction::put)
                ? ucp_put_nbx(ep, one.local, one.size, one.remote,
                              one.of_remote->key(worker_), &params)
                : ucp_get_nbx(ep, one.local, one.size, one.remote,
                              one.of_remote->key(worker_), &params);
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
        sched_yield();
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
