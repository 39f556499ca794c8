#include "hlthunk_shim/emu/fork.h"

#include "hlthunk_shim/emu/card.h"
#include "hlthunk_shim/emu/engine_threads.h"

#include <mutex>
#include <new>
#include <set>

#include <pthread.h>

namespace gaudi::emu {

namespace {

struct by_index {
    bool operator()(const card *left, const card *right) const
    {
        return left->index() < right->index();
    }
};

struct opened_cards {
    std::mutex lock;
    std::set<card *, by_index> cards;
    bool registered = false;
};

opened_cards &all()
{
    /* Never destroyed: others may fork while the process exits. */
    static auto *result = new opened_cards;
    return *result;
}

void before()
{
    all().lock.lock();
    for (card *each : all().cards) {
        each->before_fork();
    }
    engine_threads::instance().before_fork();
}

void after_in_parent()
{
    engine_threads::instance().after_fork_in_parent();
    for (card *each : all().cards) {
        each->after_fork_in_parent();
    }
    all().lock.unlock();
}

void after_in_child()
{
    engine_threads::instance().after_fork_in_child();
    for (card *each : all().cards) {
        each->after_fork_in_child();
    }
    all().lock.unlock();
}

} // namespace

void prepare_for_fork(card &opened)
{
    /* Now, and not for the first time in a handler. */
    engine_threads::instance();

    const std::lock_guard<std::mutex> guard(all().lock);
    if (!all().registered) {
        if (pthread_atfork(before, after_in_parent, after_in_child) != 0) {
            throw std::bad_alloc();
        }
        all().registered = true;
    }
    all().cards.insert(&opened);
}

} // namespace gaudi::emu
