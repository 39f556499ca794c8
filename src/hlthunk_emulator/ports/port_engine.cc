/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/ports/port_engine.h"

#include "hlthunk_emulator/driver/files.h"
#include "hlthunk_emulator/settings.h"
#include "util/background_thread.h"
#include "util/locks.h"
#include "util/process.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>
#include <thread>

#include <sys/prctl.h>

namespace gaudi::emu {

namespace {

using std::chrono::microseconds;

/* For how long the thread goes on looking without a pause, and what its pauses
 * are then. */
constexpr microseconds looks_for{5};
constexpr microseconds shortest_pause{2};
constexpr microseconds longest_pause{1000};
constexpr unsigned yields_to_callers = 64;

} // namespace

port_engine &port_engine::instance()
{
    return util::of_this_process<port_engine>();
}

int port_engine::open(unsigned card, int core_fd, uint64_t ports_mask,
                      int event_fd)
{
    /* hbl_ib_alloc_ucontext */
    const port_masks all = ports_of(card);
    uint32_t ports       = (ports_mask == 0) ? all.enabled : 0;
    for (unsigned number = 1; number < 64; ++number) {
        const auto port = port_of_verbs_number(card, number);
        if (((ports_mask >> number) & 1) != 0) {
            if (!port.has_value()) {
                log("accel%u: the mask of ports %#lx has one that is none",
                    card, ports_mask);
                return -EINVAL;
            }
            ports |= 1u << *port;
        }
    }
    try {
        const turn mine(*this);
        if (std::any_of(contexts_.begin(), contexts_.end(),
                        [=](const auto &each) {
                            return each.second->card() == card;
                        })) {
            log("accel%u: its verbs device is open already", card);
            return -EBUSY;
        }
        const software_card *const core = find_compute(core_fd);
        if ((core == nullptr) || (core->index() != card)) {
            log("accel%u: file descriptor %d is not its compute node", card,
                core_fd);
            return (core == nullptr) ? why_no_card(core_fd) : -EINVAL;
        }
        const box_wires &wires = box_wires::instance();
        if (wires.error() != 0) {
            return wires.error();
        }
        for (const fault &wished : get_settings().wires) {
            if (next_id_ == 1) { /* the first time */
                cut_wires(wished);
            }
        }
        auto opened = std::make_unique<port_context>(card, node_id::of(core_fd),
                                                     ports, event_fd);
        const int ret = start();
        if (ret != 0) {
            return ret;
        }
        contexts_.emplace(next_id_, std::move(opened));
        looked_for_.notify_one();
        return next_id_++;
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
}

/* Waits until nothing drains any more, as the driver does. */
int port_engine::close(int context)
{
    for (;;) {
        {
            const turn mine(*this);
            const auto found = contexts_.find(context);
            if (found == contexts_.end()) {
                return -ENODEV;
            }
            if (found->second->stop()) {
                contexts_.erase(found);
                return 0;
            }
        }
        std::this_thread::sleep_for(longest_pause);
    }
}

int port_engine::start()
{
    if (!started_) {
        try {
            util::start_background_thread("hlthunk-emu-nic", [this] { run(); });
            started_ = true;
        } catch (const std::system_error &error) {
            log("no thread for the ports: %s", error.what());
            return -EAGAIN;
        }
    }
    return 0;
}

void port_engine::run()
{
    /* Pauses as long as they are meant to be. */
    prctl(PR_SET_TIMERSLACK, 1000UL);
    clock::time_point busy_at = clock::now();
    clock::time_point looked_around;
    for (;;) {
        /* A caller may have lost its core. */
        for (unsigned looks = 0; callers_ > 0; ++looks) {
            if (looks < yields_to_callers) {
                std::this_thread::yield();
            } else {
                util::nap();
            }
        }
        std::unique_lock<std::mutex> guard(lock_);
        if (contexts_.empty()) {
            looked_for_.wait(guard, [this] { return !contexts_.empty(); });
            busy_at = clock::now();
        }
        clock::time_point now = clock::now();
        clock::time_point due = clock::time_point::max();
        bool any              = false;
        for (auto &[id, each] : contexts_) {
            any |= each->run(now, due);
        }
        if (now - looked_around >= longest_pause) {
            looked_around = now;
            for (auto &[id, each] : contexts_) {
                each->look_around();
            }
        }
        guard.unlock();
        busy_at = any ? now : busy_at;
        if (now - busy_at < looks_for) {
            continue;
        }
        const auto pause = std::clamp<clock::duration>(
            (now - busy_at) / 8, shortest_pause, longest_pause);
        std::this_thread::sleep_until(std::min(now + pause, due));
    }
}

} // namespace gaudi::emu
