/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The kinds of traffic: how each sends and receives a slot's bytes.
 *
 * Every function starts something, and the caller makes the workers progress
 * until it is done.
 */
#pragma once

#include "gtest/tools/peer/memory.h"
#include "gtest/tools/peer/side.h"

#include <memory>
#include <span>
#include <string>

namespace peer {

/** Two-sided: one side sends, the other receives. */
struct message_kind {
    const char *name;
    size_t smallest;     /**< bytes that it can send */
    bool receives_first; /**< the receiver waits when the message comes */
    operation (*send)(side &from, const slot &what);
    /** When it is there before anybody wants it. Null: need not be asked. */
    bool (*has_come)(side &to, const slot &what);
    operation (*receive)(side &to, const slot &what);
};

extern const std::span<const message_kind> active_message_kinds;

/** Those of one word: "tag", "pieces" (tag messages of scatter-gather lists),
 *  "am" or "stream"; none of another. */
std::span<const message_kind> message_kinds(const std::string &traffic);

/** Memory of another worker. Belongs to the endpoint that it was unpacked on.*/
class remote_memory {
public:
    remote_memory(ucp_ep_h by, const description &what);
    ~remote_memory();
    remote_memory(const remote_memory &)            = delete;
    remote_memory &operator=(const remote_memory &) = delete;

    [[nodiscard]] uint64_t address() const { return address_; }
    /** Whether the key could be unpacked. */
    [[nodiscard]] ucs_status_t status() const { return status_; }
    /** Dies when it could not. */
    [[nodiscard]] ucp_rkey_h key() const;

private:
    uint64_t address_;
    ucp_rkey_h key_ = nullptr;
    ucs_status_t status_;
};

/** One-sided: done when the bytes are where they belong. */
struct rma_kind {
    const char *name;
    bool is_put;
    operation (*start)(side &by, const slot &local, const remote_memory &remote,
                       size_t offset);
};

extern const std::span<const rma_kind> rma_kinds;

/** Registers the handler of active messages for a side of this number. */
std::shared_ptr<mailbox> make_mailbox(worker &of, unsigned number);

} // namespace peer
