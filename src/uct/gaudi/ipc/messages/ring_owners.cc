/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/messages/ring_owners.h"

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/messages/mailbox_file.h"
#include "uct/gaudi/ipc/process/shared_folder.h"
#include "util/other_process.h"

#include <sys/epoll.h>

namespace gaudi::ipc {

namespace {

/* Name of the events that are not the end of a process. */
constexpr uint64_t signal_event = 0;

} // namespace

bool ring_owners::open(int signal)
{
    events_.reset(epoll_create1(EPOLL_CLOEXEC));
    epoll_event wanted{EPOLLIN, {.u64 = signal_event}};
    return events_ &&
           (epoll_ctl(events_.get(), EPOLL_CTL_ADD, signal, &wanted) == 0);
}

void ring_owners::add(uint64_t word)
{
    owner &who = owners_[word];
    if (who.rings++ == 0) {
        who.is_dead = !follow(word, who);
    }
}

void ring_owners::remove(uint64_t word)
{
    const auto found = owners_.find(word);
    if ((found != owners_.end()) && (--found->second.rings == 0)) {
        unfollow(found->second);
        owners_.erase(found);
    }
}

bool ring_owners::is_dead(uint64_t word) const
{
    const auto found = owners_.find(word);
    return (found != owners_.end()) && found->second.is_dead;
}

/* @return Whether the process lives. */
bool ring_owners::follow(uint64_t word, owner &who)
{
    const uint32_t pid = owner_pid(word);
    if (pid == owner_pid(self_)) {
        return word == self_;
    }
    who.life = (pid == 0) ? shared_folder::instance().open_life(word)
                          : util::open_pidfd(pid);
    if (process_has_ended(word)) {
        who.life.reset();
        return false;
    }
    epoll_event wanted{EPOLLIN, {.u64 = word}};
    if (who.life && (epoll_ctl(events_.get(), EPOLL_CTL_ADD, who.life.get(),
                               &wanted) != 0)) {
        who.life.reset();
    }
    return true;
}

/* The event would outlive the descriptor here if a forked child had it, too. */
void ring_owners::unfollow(owner &who)
{
    if (who.life) {
        epoll_ctl(events_.get(), EPOLL_CTL_DEL, who.life.get(), nullptr);
        who.life.reset();
    }
}

void ring_owners::mark_dead(uint64_t word, owner &who)
{
    ucs_debug("gaudi_ipc: process %u, which owns %u rings, has ended",
              owner_pid(word), who.rings);
    unfollow(who);      /* it stays readable */
    who.is_dead = true; /* for rings of it that are found later */
}

bool ring_owners::find_dead()
{
    constexpr int batch = 16;
    epoll_event found[batch];
    bool any = false;
    for (bool more = true; more;) {
        more            = false;
        const int ready = epoll_wait(events_.get(), found, batch, 0);
        for (int i = 0; i < ready; ++i) {
            const auto known = owners_.find(found[i].data.u64);
            if (known != owners_.end()) {
                mark_dead(known->first, known->second);
                more = any = true;
            }
        }
    }
    for (auto &[word, who] : owners_) {
        if (!who.life && !who.is_dead && (word != self_) &&
            process_has_ended(word)) {
            mark_dead(word, who);
            any = true;
        }
    }
    return any;
}

} // namespace gaudi::ipc
