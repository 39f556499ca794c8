#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/kinds.h"

#include <array>
#include <memory>

namespace peer {

namespace {

constexpr ucp_tag_t exact = ~ucp_tag_t{0};

ucp_tag_t tag_of(const side &one)
{
    return 17 + one.number();
}

operation send(side &from, const slot &what)
{
    const ucp_request_param_t params = parameters_for(what);
    return operation(ucp_tag_send_nbx(from.ep(), what.data(), what.size,
                                      tag_of(from), &params),
                     "ucp_tag_send_nbx");
}

operation send_sync(side &from, const slot &what)
{
    const ucp_request_param_t params = parameters_for(what);
    return operation(ucp_tag_send_sync_nbx(from.ep(), what.data(), what.size,
                                           tag_of(from), &params),
                     "ucp_tag_send_sync_nbx");
}

operation receive(side &to, const slot &what)
{
    const ucp_request_param_t params = parameters_for(what);
    return operation(ucp_tag_recv_nbx(to.of().get(), what.data(), what.size,
                                      tag_of(to), exact, &params),
                     "ucp_tag_recv_nbx");
}

bool has_come(side &to, const slot &what)
{
    ucp_tag_recv_info_t info{};
    if (ucp_tag_probe_nb(to.of().get(), tag_of(to), exact, 0, &info) ==
        nullptr) {
        return false;
    }
    if (info.length != what.size) {
        die("ucp_tag_probe_nb", "the length is wrong");
    }
    return true;
}

operation receive_probed(side &to, const slot &what)
{
    const ucp_request_param_t params = parameters_for(what);
    ucp_tag_recv_info_t info{};
    ucp_tag_message_h message =
        ucp_tag_probe_nb(to.of().get(), tag_of(to), exact, 1, &info);
    if (message == nullptr) {
        die("ucp_tag_probe_nb", "the message is gone");
    }
    return operation(ucp_tag_msg_recv_nbx(to.of().get(), what.data(), what.size,
                                          message, &params),
                     "ucp_tag_msg_recv_nbx");
}

/* A scatter-gather list, with the memory type named: UCP 1.13 looks for it at
 * the address of the list otherwise, and takes device memory for host memory.
 */
struct pieces {
    std::array<ucp_dt_iov_t, 3> list;
    ucp_request_param_t params{};

    explicit pieces(const slot &what)
        : list{{{what.data(), 1},
                {what.data() + 1, what.size / 2},
                {what.data() + 1 + what.size / 2,
                 what.size - 1 - what.size / 2}}}
    {
        params.op_attr_mask =
            UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        params.datatype    = ucp_dt_make_iov();
        params.memory_type = type_of(what.where.kind());
    }
};

/* The list has to live as long as the operation. */
operation keep(std::shared_ptr<pieces> list, operation going)
{
    return operation([list, going]() mutable { return going.done(); });
}

operation send_pieces(side &from, const slot &what)
{
    auto list = std::make_shared<pieces>(what);
    return keep(list, operation(ucp_tag_send_nbx(from.ep(), list->list.data(),
                                                 list->list.size(),
                                                 tag_of(from), &list->params),
                                "ucp_tag_send_nbx of pieces"));
}

operation receive_pieces(side &to, const slot &what)
{
    auto list = std::make_shared<pieces>(what);
    return keep(list,
                operation(ucp_tag_recv_nbx(to.of().get(), list->list.data(),
                                           list->list.size(), tag_of(to), exact,
                                           &list->params),
                          "ucp_tag_recv_nbx of pieces"));
}

constexpr message_kind kinds[] = {
    {"tag expected", 0, true, false, send, nullptr, receive},
    {"tag unexpected", 0, false, false, send, has_come, receive},
    {"tag probed", 0, false, false, send, has_come, receive_probed},
    {"tag sync expected", 0, true, false, send_sync, nullptr, receive},
    {"tag sync unexpected", 0, false, false, send_sync, has_come, receive},
};

constexpr message_kind kinds_of_pieces[] = {
    {"tag in pieces", 3, true, false, send_pieces, nullptr, receive_pieces},
    {"tag in pieces unexpected", 3, false, false, send_pieces, has_come,
     receive_pieces},
    {"tag from pieces", 3, true, false, send_pieces, nullptr, receive},
    {"tag to pieces", 3, true, false, send, nullptr, receive_pieces},
};

} // namespace

constinit const std::span<const message_kind> tag_kinds    = kinds;
constinit const std::span<const message_kind> pieces_kinds = kinds_of_pieces;

} // namespace peer
