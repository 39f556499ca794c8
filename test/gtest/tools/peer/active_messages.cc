/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/kinds.h"

#include <array>
#include <cstring>
#include <mutex>
#include <optional>

namespace peer {

/*
 * At most one message is on its way to a side. It comes in the thread that
 * makes the worker progress, with the worker's lock held; so no UCP function is
 * called with this lock.
 */
struct mailbox {
    worker *of = nullptr;
    std::mutex lock;
    std::optional<slot> wanted;
    bool started             = false; /* receiving into the slot */
    ucs_status_ptr_t request = nullptr;
};

namespace {

/* A header tells the length of the message; its own length depends on it. */
constexpr std::array<size_t, 4> header_sizes = {8, 9, 64, 200};

unsigned first_id = 100;

size_t header_size_for(size_t length)
{
    return header_sizes.at(length % header_sizes.size());
}

void check_header(const void *header, size_t size, size_t length)
{
    std::vector<char> wanted(header_size_for(length));
    fill(wanted.data(), wanted.size(), 5);
    std::memcpy(wanted.data(), &length, sizeof(length));
    if ((size != wanted.size()) ||
        (std::memcmp(header, wanted.data(), size) != 0)) {
        die("header of an active message", "is another than was sent");
    }
}

/* The request, which is null when that was all. */
ucs_status_ptr_t start(worker &of, void *descriptor, size_t length,
                       const slot &to)
{
    if (length != to.size) {
        die("active message", "the length is wrong");
    }
    const ucp_request_param_t params = parameters_for(to);
    ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(of.get(), descriptor, to.data(), length, &params);
    if (UCS_PTR_IS_ERR(request)) {
        require(UCS_PTR_STATUS(request), "ucp_am_recv_data_nbx");
    }
    return request;
}

ucs_status_t on_message(void *arg, const void *header, size_t header_size,
                        void *data, size_t length, const ucp_am_recv_param_t *)
{
    mailbox &mail = *static_cast<mailbox *>(arg);
    check_header(header, header_size, length);

    std::unique_lock<std::mutex> lock(mail.lock);
    if (mail.started || !mail.wanted) {
        die("active message", "nobody waits for it");
    }
    const slot to = *mail.wanted;
    lock.unlock();
    ucs_status_ptr_t request =
        (length > 0) ? start(*mail.of, data, length, to) : nullptr;
    lock.lock();
    mail.request = request;
    mail.started = true;
    return UCS_OK;
}

template <uint32_t flags>
operation send(side &from, const slot &what)
{
    /* UCP reads the header until the message is sent. */
    const auto header =
        std::make_shared<std::vector<char>>(header_size_for(what.size));
    fill(header->data(), header->size(), 5);
    std::memcpy(header->data(), &what.size, sizeof(what.size));

    ucp_request_param_t params = parameters_for(what);
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = flags;
    return operation(ucp_am_send_nbx(from.ep(), first_id + from.number(),
                                     header->data(), header->size(),
                                     what.data(), what.size, &params),
                     "ucp_am_send_nbx", header);
}

operation receive(side &to, const slot &what)
{
    mailbox &mail = to.mail();
    {
        const std::lock_guard<std::mutex> guard(mail.lock);
        mail.wanted.emplace(what);
    }
    return operation([&mail] {
        const std::lock_guard<std::mutex> locked(mail.lock);
        if (!mail.started && !mail.wanted) {
            return true; /* asked once more after the end */
        }
        if (!mail.started) {
            return false;
        }
        if (mail.request != nullptr) {
            const ucs_status_t status = ucp_request_check_status(mail.request);
            if (status == UCS_INPROGRESS) {
                return false;
            }
            require(status, "ucp_am_recv_data_nbx");
            ucp_request_free(mail.request);
            mail.request = nullptr;
        }
        mail.started = false;
        mail.wanted.reset();
        return true;
    });
}

constexpr message_kind kinds[] = {
    {"active message", 0, true, send<0>, nullptr, receive},
    {"eager active message", 0, true, send<UCP_AM_SEND_FLAG_EAGER>, nullptr,
     receive},
    {"rendezvous active message", 1, true, send<UCP_AM_SEND_FLAG_RNDV>, nullptr,
     receive},
};

} // namespace

constinit const std::span<const message_kind> active_message_kinds = kinds;

std::shared_ptr<mailbox> make_mailbox(worker &of, unsigned number)
{
    auto mail = std::make_shared<mailbox>();
    mail->of  = &of;
    ucp_am_handler_param_t params{};
    params.field_mask =
        UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
        UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    params.id    = first_id + number;
    params.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
    params.cb    = on_message;
    params.arg   = mail.get();
    require(ucp_worker_set_am_recv_handler(of.get(), &params),
            "ucp_worker_set_am_recv_handler");
    return mail;
}

} // namespace peer
