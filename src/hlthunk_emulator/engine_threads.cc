/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/engine_threads.h"

#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/sysfs_view.h"
#include "util/background_thread.h"
#include "util/placement.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

namespace gaudi::emu {

namespace {

/* How long a job may go without a poll before a thread takes it. */
constexpr std::chrono::microseconds grace{500};
/* How long a thread looks for more before it has to be kicked again. */
constexpr unsigned idle_rounds = 10;

} // namespace

void engine_threads::kick(const engine_work &busy)
{
    const unsigned count = get_settings().engines;
    if (count == 0) {
        return;
    }

    std::lock_guard<std::mutex> guard(lock_);
    ++kicks_;
    if (std::none_of(cards_.begin(), cards_.end(), [&](const auto &known) {
            return known.card == busy.card;
        })) {
        cards_.push_back(busy);
    }
    if (!started_) {
        try {
            for (unsigned i = 0; i < count; ++i) {
                gaudi::util::start_background_thread("hlthunk-emu",
                                                     [this] { run(); });
            }
        } catch (const std::system_error &error) {
            /* Whoever polls does the work. */
            log("no engine thread: %s", error.what());
        }
        started_ = true;
    }
    if (sleeping_ > 0) {
        kicked_.notify_one();
    }
}

/* Run what nobody polls for. False when no card has work at all. */
bool engine_threads::work()
{
    std::vector<engine_work> cards;
    {
        std::lock_guard<std::mutex> guard(lock_);
        cards = cards_;
    }
    bool any = false;
    for (const engine_work &next : cards) {
        gaudi::util::place_thread(numa_node_of(next.card));
        any |= next.run_unattended(next.card);
    }
    return any;
}

void engine_threads::run()
{
    for (;;) {
        unsigned long seen;
        {
            std::lock_guard<std::mutex> guard(lock_);
            seen = kicks_;
        }
        for (unsigned idle = 0; idle < idle_rounds; ++idle) {
            std::this_thread::sleep_for(grace);
            if (work()) {
                idle = 0;
            }
        }
        std::unique_lock<std::mutex> guard(lock_);
        ++sleeping_;
        kicked_.wait(guard, [&] { return kicks_ != seen; });
        --sleeping_;
    }
}

} // namespace gaudi::emu
