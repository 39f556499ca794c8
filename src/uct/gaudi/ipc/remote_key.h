/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a uct_rkey_t of gaudi_ipc points to: memory of another process, or of
 * this one.
 *
 * Counted: by the user who unpacked it and by every operation that uses it, so
 * that an operation may outlive rkey_release. Any thread.
 */
#pragma once

#include "uct/gaudi/base/transfer/remote_memory.h"
#include "uct/gaudi/ipc/key.h"

#include <atomic>
#include <compare>

namespace gaudi::ipc {

class remote_key final : public base::remote_memory {
public:
    /** Make a key of what was received, without asking its owner.
     *  @param buffer  sizeof(wire_key) bytes, of any alignment.
     *  @param key_p   Filled on success; owned by the caller, see @ref drop.
     *  @return UCS_ERR_UNREACHABLE when this process cannot use the memory;
     *          logged at debug level. UCS_ERR_INVALID_PARAM: not a key;
     *          logged. */
    [[nodiscard]] static ucs_status_t unpack(const void *buffer,
                                             remote_key *&key_p);

    /** The user has no use for it any more. */
    void drop();

    /** Memory of this process: an address is a pointer, and nothing but @ref
     *  state may be called. */
    [[nodiscard]] bool is_own() const { return is_own_; }

    /** UCS_OK, or why it cannot be used. UCS_ERR_CONNECTION_RESET: it has
     *  ended. UCS_ERR_IO_ERROR: no way leads to it, and UCP's old protocols
     *  know none either. A key of another process may have ended without this
     *  telling it: the owner does. */
    [[nodiscard]] ucs_status_t state() const;

    /** Equal: of the same registration. */
    [[nodiscard]] std::strong_ordering compare(const remote_key &other) const
    {
        return key_.word <=> other.key_.word;
    }

    [[nodiscard]] bool is_host() const { return key_.kind == key_kind::host; }
    [[nodiscard]] uint64_t process() const { return key_.process; }
    [[nodiscard]] uint32_t pid() const { return key_.pid; }
    [[nodiscard]] uint64_t word() const { return key_.word; }
    [[nodiscard]] uint64_t address() const { return key_.address; }
    [[nodiscard]] uint64_t length() const { return key_.length; }

    /* base::remote_memory */
    [[nodiscard]] ucs_status_t check(uint64_t address, size_t length) override;
    [[nodiscard]] ucs_status_t hold() override;
    void release() override;
    [[nodiscard]] const base::route_list &
    routes(const base::card *from) override;
    [[nodiscard]] base::card_place place() const override
    {
        return {base::pci_address{key_.card}, key_.module};
    }

    /** The ports by which it may be used: request_queue's epoch. */
    std::atomic<uint64_t> confirmed_by{0};

    /** Have keys of a word of a process fail from now on. @return Whether
     *  operations still use one. Thread: the service's. */
    [[nodiscard]] static bool revoke(uint64_t process, uint64_t word);

private:
    explicit remote_key(const wire_key &key) : key_(key) {}
    ~remote_key() override;

    const wire_key key_;
    bool is_own_          = false;
    bool is_listed_       = false; /* to be revoked */
    ucs_status_t failure_ = UCS_OK;
    std::atomic<bool> revoked_{false};
    std::atomic<uint32_t> uses_{0};
    std::atomic<uint32_t> references_{1};
    std::atomic<const base::pair_routes *> routes_{nullptr}; /* asked last */
};

/** The key behind an rkey; nullptr for UCT_INVALID_RKEY. */
inline remote_key *to_remote_key(uct_rkey_t rkey)
{
    return (rkey == UCT_INVALID_RKEY) ? nullptr
                                      : reinterpret_cast<remote_key *>(rkey);
}

} // namespace gaudi::ipc
