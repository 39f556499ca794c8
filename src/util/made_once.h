/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An object that the first call makes, for this process and its children: as a
 * static inside a function, but for what takes long to make. A child that is
 * forked meanwhile makes it itself, and does not wait for a thread that it does
 * not have.
 *
 * Never destroyed: threads that work to the very end use it, too. Any thread.
 * One per process and child, instead: util/process.h.
 */
#pragma once

#include "util/fork_handlers.h"

#include <atomic>
#include <mutex>

namespace gaudi::util {

template <typename T>
class made_once {
public:
    /** @param make  Gives the object; called by one thread at a time, until it
     *               has returned once. */
    template <typename Make>
    const T &get(Make &&make)
    {
        const T *known = made_.load(std::memory_order_acquire);
        if (known == nullptr) {
            const std::lock_guard<child_mutex> guard(making_);
            known = made_.load(std::memory_order_relaxed);
            if (known == nullptr) {
                known = new T(make());
                made_.store(known, std::memory_order_release);
            }
        }
        return *known;
    }

private:
    child_mutex making_;
    std::atomic<const T *> made_{nullptr};
};

} // namespace gaudi::util
