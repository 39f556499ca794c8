/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The ports that this process has open, and the thread that works for them:
 * doorbells are plain stores to memory, so somebody has to look.
 *
 * It looks all the time while there is something to do, and less and less often
 * afterwards: it sleeps for an eighth of the time for which nothing has come,
 * up to a millisecond. Without any queue pair it waits to be woken.
 *
 * Any thread. Callers go before the thread's next look.
 */
#pragma once

#include "hlthunk_emulator/ports/port_context.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

namespace gaudi::emu {

class port_engine {
public:
    static port_engine &instance();

    /** As port_calls has them. */
    int open(unsigned card, int core_fd, uint64_t ports_mask, int event_fd);
    int close(int context);

    /** Do something, work(context), with one that is open.
     *  @return What it returns, -ENODEV, or -ENOMEM. */
    template <typename Work>
    int with(int context, Work &&work) noexcept
    {
        try {
            const turn mine(*this);
            const auto found = contexts_.find(context);
            const int ret =
                (found == contexts_.end()) ? -ENODEV : work(*found->second);
            looked_for_.notify_one();
            return ret;
        } catch (const std::bad_alloc &) {
            return -ENOMEM;
        }
    }

private:
    using clock = std::chrono::steady_clock;

    /* The lock, before the thread gets it again. */
    class turn {
    public:
        explicit turn(port_engine &of) : of_(of)
        {
            ++of_.callers_;
            of_.lock_.lock();
            --of_.callers_;
        }
        ~turn() { of_.lock_.unlock(); }
        turn(const turn &)            = delete;
        turn &operator=(const turn &) = delete;

    private:
        port_engine &of_;
    };

    int start();
    void run();

    std::mutex lock_;
    std::atomic<unsigned> callers_{0};
    std::condition_variable looked_for_;
    bool started_ = false;
    int next_id_  = 1;
    std::map<int, std::unique_ptr<port_context>> contexts_;
};

} // namespace gaudi::emu
