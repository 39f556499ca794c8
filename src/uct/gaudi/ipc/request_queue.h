/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies that the owner of remote memory makes for an engine of this process:
 * the requests of a link, as a lane like a card's.
 *
 * A request is in the slot of its number; it is there when `posted` is beyond
 * that, and has ended when its `ended` is. One thread.
 */
#pragma once

#include "uct/gaudi/base/transfer/lane.h"
#include "uct/gaudi/ipc/link.h"

#include <array>
#include <bitset>
#include <cerrno>
#include <chrono>
#include <memory>
#include <unordered_map>
#include <utility>

namespace gaudi::ipc {

class request_queue final : public base::owner_lane {
public:
    request_queue(std::shared_ptr<link> over,
                  const base::transfer_options &options)
        : owner_lane(options, over->chunks(), max_requests),
          link_(std::move(over))
    {
        link_->in_use = this;
    }
    ~request_queue() override
    {
        link_->in_use = nullptr;
        error_        = -ESRCH; /* nothing uses it: what a peer answers yet is
                                   whether keys are valid */
        (void)wait_for_jobs();
    }

    [[nodiscard]] const char *name() const override
    {
        return link_->name().c_str();
    }
    [[nodiscard]] bool has_failed() const override
    {
        return (error_ != 0) || link_->is_over();
    }
    [[nodiscard]] int submit(const base::work_queue &queue, base::job &which,
                             uint64_t dst, uint64_t src) override;
    [[nodiscard]] unsigned outstanding() const override
    {
        return static_cast<unsigned>(posted_ - taken_);
    }
    unsigned poll(shim::dma_completion *completions, unsigned max) override;
    [[nodiscard]] int wait_all(uint64_t timeout_us) override;
    [[nodiscard]] bool arm(base::wakeup_event &) const override;
    [[nodiscard]] int confirm(base::remote_memory &of, bool again) override;
    [[nodiscard]] int ask_for_ports(uint32_t number, uint32_t card,
                                    const shim::port_offer &offer) override
    {
        return link_->ask_for_ports(number, card, offer);
    }
    [[nodiscard]] int ports_answer(uint32_t number,
                                   shim::port_offer &offer_p) override;
    void note_unquiet_ports() override { link_->note_unquiet_ports(); }

private:
    using clock = std::chrono::steady_clock;

    [[nodiscard]] int post(const request_body &asked, void *cookie);
    [[nodiscard]] bool is_answered(uint64_t number) const
    {
        return link_->request(number).ended.load(std::memory_order_acquire) ==
               number + 1;
    }
    /** Though one before it has not ended. */
    [[nodiscard]] bool is_taken(uint64_t number) const
    {
        return taken_early_[number % max_requests];
    }
    [[nodiscard]] int result_of(uint64_t number) const;
    void end_check(uint64_t number, int result);
    [[nodiscard]] bool is_quiet();

    const std::shared_ptr<link> link_;
    std::array<void *, max_requests> cookies_{}; /* by slot */
    uint64_t posted_ = 0;
    uint64_t taken_  = 0;                     /* by poll: all before it */
    std::bitset<max_requests> taken_early_{}; /* and these, by slot */
    uint64_t writes_     = 0; /* behind the last one over ports */
    unsigned idle_polls_ = 0; /* since one that found something */
    int error_           = 0; /* of what has not ended, once it is over */

    /* Whether keys are valid, by their words. */
    struct key_check {
        uint64_t number = 0; /* of the request */
        int result      = -EINPROGRESS;
    };
    std::unordered_map<uint64_t, key_check> checks_;
    uint64_t epoch_       = UINT64_MAX; /* of the ports: see confirm() */
    uint64_t revocations_ = 0;          /* of the link, when they were made */
    clock::time_point quiet_at_{};      /* of that */
};

} // namespace gaudi::ipc
