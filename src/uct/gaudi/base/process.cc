#include "uct/gaudi/base/process.h"

#include "uct/gaudi/base/device_table.h"
#include "uct/gaudi/base/wakeup.h"

#include <pthread.h>

extern "C" {
#include <ucs/sys/sys.h>
}

namespace gaudi::base {

std::atomic<unsigned> detail::process_generation{0};

namespace {

std::atomic<uint64_t> identity{0};

/* Two handlers may count a fork, in an order that depends on who was first to
 * register; it is one. */
std::atomic<bool> uncounted_fork{false};

void announce_fork()
{
    uncounted_fork.store(true);
}

void count_fork_in_child()
{
    if (uncounted_fork.exchange(false)) {
        detail::process_generation.fetch_add(1);
        identity.store(0);
    }
}

void before_fork()
{
    announce_fork();
    device_table::before_fork();
}

void after_fork_in_parent()
{
    device_table::after_fork_in_parent();
}

/* Stores, and the driver library's close, which is close(2) in the vendor's. */
void after_fork_in_child()
{
    count_fork_in_child();
    device_table::after_fork_in_child();
    wakeup_event::after_fork_in_child();
}

} // namespace

uint64_t process_identity()
{
    uint64_t known = identity.load();
    if (known == 0) {
        const uint64_t fresh =
            ucs_generate_uuid(reinterpret_cast<uintptr_t>(&identity)) | 1;
        known = identity.compare_exchange_strong(known, fresh) ? fresh : known;
    }
    return known;
}

void count_forks()
{
    static const int error =
        pthread_atfork(announce_fork, nullptr, count_fork_in_child);
    if (error != 0) {
        ucs_warn("gaudi: forked children will not be noticed");
    }
}

void watch_forks()
{
    static const int error =
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    if (error != 0) {
        ucs_warn("gaudi: forked children will not be noticed");
    }
}

} // namespace gaudi::base
