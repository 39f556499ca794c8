#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/kinds.h"

#include <memory>

namespace peer {

namespace {

/* Without the memory's handle, which UCP 1.13 refuses by an assertion when both
 * its new protocols and a transport with zero copy are there. */
operation send(side &from, const slot &what)
{
    const ucp_request_param_t defaults{};
    return operation(
        ucp_stream_send_nbx(from.ep(), what.data(), what.size, &defaults),
        "ucp_stream_send_nbx");
}

/* As many bytes as are there, until all of them are. */
operation receive(side &to, const slot &what)
{
    struct state {
        size_t received          = 0;
        size_t length            = 0;
        ucs_status_ptr_t request = nullptr;
    };
    auto now           = std::make_shared<state>();
    const ucp_ep_h ep  = to.ep();
    char *const start  = what.data();
    const size_t total = what.size;

    return operation([=] {
        while (now->received < total) {
            if (now->request == nullptr) {
                const ucp_request_param_t params{};
                now->request = ucp_stream_recv_nbx(ep, start + now->received,
                                                   total - now->received,
                                                   &now->length, &params);
                if (UCS_PTR_IS_ERR(now->request)) {
                    require(UCS_PTR_STATUS(now->request),
                            "ucp_stream_recv_nbx");
                }
            } else {
                const ucs_status_t status =
                    ucp_stream_recv_request_test(now->request, &now->length);
                if (status == UCS_INPROGRESS) {
                    return false;
                }
                require(status, "ucp_stream_recv_nbx");
                ucp_request_free(now->request);
                now->request = nullptr;
            }
            if (now->request == nullptr) {
                now->received += now->length;
            }
        }
        return true;
    });
}

operation receive_all(side &to, const slot &what)
{
    auto length                = std::make_shared<size_t>(0);
    ucp_request_param_t params = parameters_for(what);
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_STREAM_RECV_FLAG_WAITALL;
    operation going(ucp_stream_recv_nbx(to.ep(), what.data(), what.size,
                                        length.get(), &params),
                    "ucp_stream_recv_nbx of all");
    return operation([length, going]() mutable { return going.done(); });
}

/* UCP's own memory, copied from there. */
operation receive_data(side &to, const slot &what)
{
    auto received      = std::make_shared<size_t>(0);
    const ucp_ep_h ep  = to.ep();
    memory &where      = what.where;
    const size_t start = what.offset;
    const size_t total = what.size;

    return operation([=, &where] {
        while (*received < total) {
            size_t length         = 0;
            ucs_status_ptr_t data = ucp_stream_recv_data_nb(ep, &length);
            if (data == nullptr) {
                return false;
            }
            if (UCS_PTR_IS_ERR(data)) {
                require(UCS_PTR_STATUS(data), "ucp_stream_recv_data_nb");
            }
            if (length > total - *received) {
                die("ucp_stream_recv_data_nb", "there are too many bytes");
            }
            where.store(start + *received, static_cast<char *>(data), length);
            ucp_stream_data_release(ep, data);
            *received += length;
        }
        return true;
    });
}

constexpr message_kind kinds[] = {
    {"stream expected", 1, true, false, send, nullptr, receive},
    {"stream unexpected", 1, false, false, send, nullptr, receive},
    {"stream of all expected", 1, true, false, send, nullptr, receive_all},
    {"stream of all unexpected", 1, false, false, send, nullptr, receive_all},
    {"stream data", 1, false, true, send, nullptr, receive_data},
};

} // namespace

constinit const std::span<const message_kind> stream_kinds = kinds;

} // namespace peer
