/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/kinds.h"

#include "gtest/tools/peer/check.h"

#include <array>
#include <map>
#include <memory>

namespace peer {

namespace {

/* --- tags ----------------------------------------------------------------- */

constexpr ucp_tag_t exact = ~ucp_tag_t{0};

ucp_tag_t tag_of(const side &one)
{
    return 17 + one.number();
}

template <auto function>
operation send(side &from, const slot &what)
{
    const ucp_request_param_t params = parameters_for(what);
    return operation(
        function(from.ep(), what.data(), what.size, tag_of(from), &params),
        "ucp_tag_send_nbx or ucp_tag_send_sync_nbx");
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

operation send_pieces(side &from, const slot &what)
{
    const auto own = std::make_shared<pieces>(what);
    return operation(ucp_tag_send_nbx(from.ep(), own->list.data(),
                                      own->list.size(), tag_of(from),
                                      &own->params),
                     "ucp_tag_send_nbx of pieces", own);
}

operation receive_pieces(side &to, const slot &what)
{
    const auto own = std::make_shared<pieces>(what);
    return operation(ucp_tag_recv_nbx(to.of().get(), own->list.data(),
                                      own->list.size(), tag_of(to), exact,
                                      &own->params),
                     "ucp_tag_recv_nbx of pieces", own);
}

constexpr message_kind kinds_of_tags[] = {
    {"tag expected", 0, true, send<ucp_tag_send_nbx>, nullptr, receive},
    {"tag unexpected", 0, false, send<ucp_tag_send_nbx>, has_come, receive},
    {"tag sync expected", 0, true, send<ucp_tag_send_sync_nbx>, nullptr,
     receive},
    {"tag sync unexpected", 0, false, send<ucp_tag_send_sync_nbx>, has_come,
     receive},
};

constexpr message_kind kinds_of_pieces[] = {
    {"tag in pieces", 3, true, send_pieces, nullptr, receive_pieces},
    {"tag in pieces unexpected", 3, false, send_pieces, has_come,
     receive_pieces},
    {"tag from pieces", 3, true, send_pieces, nullptr, receive},
    {"tag to pieces", 3, true, send<ucp_tag_send_nbx>, nullptr, receive_pieces},
};

/* --- streams -------------------------------------------------------------- */

/* Without the memory's handle, which UCP 1.13 refuses by an assertion when both
 * its new protocols and a transport with zero copy are there. */
operation send_stream(side &from, const slot &what)
{
    const ucp_request_param_t defaults{};
    return operation(
        ucp_stream_send_nbx(from.ep(), what.data(), what.size, &defaults),
        "ucp_stream_send_nbx");
}

/* As many bytes as are there, until all of them are. */
operation receive_stream(side &to, const slot &what)
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

constexpr message_kind kinds_of_streams[] = {
    {"stream expected", 1, true, send_stream, nullptr, receive_stream},
    {"stream unexpected", 1, false, send_stream, nullptr, receive_stream},
};

/* --- RMA ------------------------------------------------------------------ */

/* The operation itself, and a flush behind it. */
operation with_flush(side &by, operation going)
{
    const ucp_request_param_t defaults{};
    operation flush(ucp_ep_flush_nbx(by.ep(), &defaults), "ucp_ep_flush_nbx");
    return operation([going, flush]() mutable {
        /* Both are asked: each releases its request when it is done. */
        const bool went    = going.done();
        const bool flushed = flush.done();
        return went && flushed;
    });
}

template <auto function>
operation start(side &by, const slot &local, const remote_memory &remote,
                size_t offset)
{
    const ucp_request_param_t params = parameters_for(local);
    return with_flush(by, operation(function(by.ep(), local.data(), local.size,
                                             remote.address() + offset,
                                             remote.key(), &params),
                                    "ucp_put_nbx or ucp_get_nbx"));
}

constexpr rma_kind kinds_of_rma[] = {{"put", true, start<ucp_put_nbx>},
                                     {"get", false, start<ucp_get_nbx>}};

} // namespace

constinit const std::span<const rma_kind> rma_kinds = kinds_of_rma;

std::span<const message_kind> message_kinds(const std::string &traffic)
{
    const std::map<std::string, std::span<const message_kind>> all = {
        {"tag", kinds_of_tags},
        {"pieces", kinds_of_pieces},
        {"am", active_message_kinds},
        {"stream", kinds_of_streams}};
    const auto found = all.find(traffic);
    return (found == all.end()) ? std::span<const message_kind>()
                                : found->second;
}

remote_memory::remote_memory(ucp_ep_h by, const description &what)
    : address_(what.address),
      status_(ucp_ep_rkey_unpack(by, what.key.data(), &key_))
{}

remote_memory::~remote_memory()
{
    if (status_ == UCS_OK) {
        ucp_rkey_destroy(key_);
    }
}

ucp_rkey_h remote_memory::key() const
{
    require(status_, "ucp_ep_rkey_unpack");
    return key_;
}

} // namespace peer
