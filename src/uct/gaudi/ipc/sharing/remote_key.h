/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a uct_rkey_t of gaudi_ipc points to: memory of another process, or of
 * this one.
 *
 * Counted: by the user who unpacked it and by every operation that holds it, so
 * that an operation may outlive rkey_release. Any thread.
 */
#pragma once

#include "uct/gaudi/ipc/process/foreign_pages.h"
#include "uct/gaudi/ipc/serving/copy_client.h"
#include "uct/gaudi/ipc/sharing/key.h"
#include "util/process.h"

#include <atomic>
#include <compare>
#include <memory>
#include <utility>

namespace gaudi::ipc {

class remote_key final : public served_memory {
public:
    /** Make a key of what was received.
     *
     *  A key that operations can only fail with is made, too, where UCP would
     *  do worse without one:
     *    - its process has ended: UCP would ask that to stage the memory, and
     *      UCP 1.13 then ends this process with a failed assertion
     *    - its registration has ended: its owner would touch what is at these
     *      addresses now
     *    - a failure, such as no room for descriptors or a lost card: the old
     *      protocols would have a CPU touch device memory. The new ones stage,
     *      and so do all for messages: to them such memory is unreachable.
     *  @param buffer  sizeof(wire_key) bytes, of any alignment.
     *  @param key_p   Filled on success; owned by the caller, see @ref drop.
     *  @return UCS_ERR_UNREACHABLE when this process cannot use the memory;
     *          said at debug level. UCS_ERR_INVALID_PARAM for what is no key;
     *          logged. */
    [[nodiscard]] static ucs_status_t unpack(const void *buffer,
                                             remote_key *&key_p);

    /** Make a key for somebody who has no other way to the memory, and can be
     *  told.
     *  @param wire   As read_key gave it, of another process.
     *  @return As @ref failure; UCS_ERR_UNREACHABLE: its process does not let
     *          this one have it. UCS_ERR_UNSUPPORTED: no card of this process
     *          reaches it. UCS_ERR_NO_RESOURCE. Said at debug level. */
    [[nodiscard]] static ucs_status_t open(const wire_key &wire,
                                           remote_key *&key_p);

    /** The user has no use for it any more. */
    void drop();

    /** Memory of this process: an address is a pointer, and nothing but @ref
     *  state may be called. */
    [[nodiscard]] bool is_own() const
    {
        return (failure_ == UCS_OK) && (of_ == nullptr);
    }

    /** Why it never could be used, and only process, drop, check and hold may
     *  be called; UCS_OK for others. UCS_ERR_ENDPOINT_TIMEOUT: its process had
     *  ended before. UCS_ERR_CONNECTION_RESET: its registration had.
     *  UCS_ERR_IO_ERROR: opening it failed; another unpacking may succeed. */
    [[nodiscard]] ucs_status_t failure() const { return failure_; }

    /** UCS_OK, or why it cannot be used now, as @ref hold says. */
    [[nodiscard]] ucs_status_t state() const;

    /** Equal: of the same registration, and as useful. */
    [[nodiscard]] std::strong_ordering compare(const remote_key &other) const;

    [[nodiscard]] bool is_host() const { return key_.kind == key_kind::host; }

    /** Whose memory it is. */
    [[nodiscard]] const process_id &process() const { return key_.process; }

    /** UCS_ERR_INVALID_ADDR outside of the registration, else as
     *  @ref hold. */
    [[nodiscard]] ucs_status_t check(uint64_t address, size_t length) override;
    [[nodiscard]] bool has(uint64_t address, size_t length) const override
    {
        return is_inside(address, length) && (of_ != nullptr) && !is_over();
    }

    /** @return UCS_ERR_ENDPOINT_TIMEOUT: the process has ended, or executed
     *          another program. Other errors are those of @ref failure.
     *          UCS_ERR_CONNECTION_RESET: it has invalidated the key, or
     *          unmapped the memory. UCS_ERR_NO_RESOURCE: more keys are in use
     *          than there is room for. */
    [[nodiscard]] ucs_status_t hold() override;
    void release() override;

    [[nodiscard]] const util::process_memory *host() override;
    [[nodiscard]] const base::route_list &
    routes(const base::card *from) override;
    [[nodiscard]] uint64_t owner() const override { return key_.process.nonce; }
    [[nodiscard]] int
    connect(const base::owner_queue_options &wished,
            std::unique_ptr<base::owner_queue> &queue_p) override;
    [[nodiscard]] own_page::mark mark() const override
    {
        return {key_.cell, key_.stamp};
    }
    [[nodiscard]] base::card_place place() const override
    {
        return {base::pci_address{key_.card}, key_.module};
    }

private:
    explicit remote_key(const wire_key &key);
    [[nodiscard]] bool is_inside(uint64_t address, size_t length) const
    {
        return (address >= key_.address) && (length <= key_.length) &&
               (address - key_.address <= key_.length - length);
    }
    /* Whether its process has ended the key. */
    [[nodiscard]] bool is_over() const
    {
        return of_->cell(key_.cell) != key_.stamp;
    }
    ~remote_key() override;

    [[nodiscard]] static ucs_status_t find(const wire_key &key,
                                           std::shared_ptr<foreign_page> &of_p);
    [[nodiscard]] static ucs_status_t
    find_host(const wire_key &key, std::shared_ptr<foreign_page> &of_p);
    [[nodiscard]] static ucs_status_t
    find_device(const wire_key &key, std::shared_ptr<foreign_page> &of_p);
    [[nodiscard]] static ucs_status_t failure_of(const wire_key &key,
                                                 ucs_status_t status);
    hazard_entry *make_hazard();

    const wire_key key_;
    ucs_status_t failure_ = UCS_OK;
    std::atomic<uint32_t> references_{1};
    std::atomic<hazard_entry *> hazard_{nullptr}; /* from the first hold on */
    std::shared_ptr<foreign_page> of_; /* nullptr: this process, or useless */
    std::atomic<const base::pair_routes *> routes_{nullptr}; /* asked last */
};

/** The key behind an rkey; nullptr for UCT_INVALID_RKEY. */
inline remote_key *to_remote_key(uct_rkey_t rkey)
{
    return (rkey == UCT_INVALID_RKEY) ? nullptr
                                      : reinterpret_cast<remote_key *>(rkey);
}

} // namespace gaudi::ipc
