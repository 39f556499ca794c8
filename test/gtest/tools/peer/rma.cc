#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/kinds.h"

namespace peer {

namespace {

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

constexpr rma_kind kinds[] = {{"put", true, start<ucp_put_nbx>},
                              {"get", false, start<ucp_get_nbx>}};

} // namespace

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

constinit const std::span<const rma_kind> rma_kinds = kinds;

} // namespace peer
