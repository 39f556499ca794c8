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

operation put(side &by, const slot &local, const remote_memory &remote,
              size_t offset)
{
    const ucp_request_param_t params = parameters_for(local);
    return with_flush(
        by,
        operation(ucp_put_nbx(by.ep(), local.data(), local.size,
                              remote.address() + offset, remote.key(), &params),
                  "ucp_put_nbx"));
}

operation get(side &by, const slot &local, const remote_memory &remote,
              size_t offset)
{
    const ucp_request_param_t params = parameters_for(local);
    return with_flush(
        by,
        operation(ucp_get_nbx(by.ep(), local.data(), local.size,
                              remote.address() + offset, remote.key(), &params),
                  "ucp_get_nbx"));
}

constexpr rma_kind kinds[] = {{"put", true, put}, {"get", false, get}};

} // namespace

remote_memory::remote_memory(side &of, uint64_t address,
                             const std::vector<char> &key)
    : address_(address)
{
    require(ucp_ep_rkey_unpack(of.ep(), key.data(), &key_),
            "ucp_ep_rkey_unpack");
}

remote_memory::~remote_memory()
{
    ucp_rkey_destroy(key_);
}

std::span<const rma_kind> rma_kinds()
{
    return kinds;
}

} // namespace peer
