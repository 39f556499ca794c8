/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Has another process copy with its own cards: see copy_ring.h.
 *
 * For one engine, on its thread. The memory is that of the engine's process,
 * so it stays when the other one goes.
 */
#pragma once

#include "hlthunk_shim/ports/connection.h"
#include "uct/gaudi/base/transfer/owner_queue.h"
#include "uct/gaudi/ipc/process/shared_page.h"
#include "uct/gaudi/ipc/serving/copy_ring.h"
#include "util/file_mapping.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gaudi::ipc {

/** Memory of another process, as far as that is asked for copies. */
class served_memory : public base::remote_memory {
public:
    /** The key that allows them. */
    [[nodiscard]] virtual own_page::mark mark() const = 0;
};

class copy_client final : public base::owner_queue {
public:
    /** Ask a process to copy for this one.
     *  @param queue_p  Filled on success; takes served_memory of that process
     *                  alone.
     *  @return 0; -EOPNOTSUPP: it does not; -ESRCH: it has ended; or -errno,
     * said at debug level. */
    [[nodiscard]] static int
    connect(std::shared_ptr<foreign_page> of,
            const base::owner_queue_options &wished,
            std::unique_ptr<base::owner_queue> &queue_p);

    ~copy_client() override;

    [[nodiscard]] std::span<char> memory() const override;
    [[nodiscard]] bool is_over() override;
    [[nodiscard]] bool is_closed() override
    {
        return (over_ != 0) || (ring().server_gone.load() != 0);
    }
    [[nodiscard]] bool arm() override;
    [[nodiscard]] int ask_for_ports(base::remote_memory &of, uint64_t offset,
                                    uint32_t link) override;
    [[nodiscard]] int ports_answer(uint64_t timeout_us) override;
    [[nodiscard]] int ask_over_ports(base::remote_memory &of, uint32_t link,
                                     uint64_t target, uint64_t src,
                                     uint64_t length, void *cookie) override;
    [[nodiscard]] const char *name() const override { return name_.c_str(); }
    unsigned poll(shim::dma_completion *completions, unsigned max) override;
    [[nodiscard]] int wait_all(uint64_t timeout_us) override;
    void wait_for_oldest(uint64_t timeout_us) override;
    [[nodiscard]] unsigned outstanding() const override
    {
        return static_cast<unsigned>(posted_ - taken_);
    }

private:
    using clock = std::chrono::steady_clock;

    /* How long one that is destroyed waits for copies. */
    static constexpr uint64_t patience_us = 1'000'000;
    /* Polls that find nothing before it wakes the server's thread, which leaves
     * its work to interfaces for a while after they did some. */
    static constexpr unsigned polls_before_bell = 1024;

    copy_client(std::shared_ptr<foreign_page> of,
                const base::owner_queue_options &wished);

    [[nodiscard]] int ask(base::remote_memory &of, bool is_put,
                          uint64_t address, uint64_t offset, uint64_t length,
                          void *cookie) override;
    [[nodiscard]] int post(const request_body &asked, void *cookie);
    void note_idle_poll();
    [[nodiscard]] bool is_quiet();
    [[nodiscard]] int make_ring(util::unique_fd &ring_p);
    [[nodiscard]] copy_ring &ring() const
    {
        return *reinterpret_cast<copy_ring *>(mapping_.start());
    }
    [[nodiscard]] copy_request &request(uint64_t number) const
    {
        return ring().requests()[number % cookies_.size()];
    }
    [[nodiscard]] bool has_ended(uint64_t number) const
    {
        return request(number).ended.load() == number + 1;
    }

    const std::shared_ptr<foreign_page> of_;
    const std::string name_;
    const size_t data_bytes_;
    const int wake_fd_;
    util::file_mapping mapping_;
    util::unique_fd bell_;        /* the server's */
    std::vector<void *> cookies_; /* by slot */
    static constexpr uint64_t none = UINT64_MAX;
    uint64_t asked_ports_          = none;         /* number of that request, */
    int ports_answer_              = -EINPROGRESS; /* once poll has met it */
    uint64_t posted_               = 0;
    uint64_t taken_                = 0; /* by poll */
    uint64_t writes_               = 0; /* behind the last one over ports */
    unsigned idle_polls_           = 0; /* since one that found something */
    int over_ = 0; /* -errno of what has not ended, once it is over */
    clock::time_point quiet_at_{}; /* of that */
};

} // namespace gaudi::ipc
