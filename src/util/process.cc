#include "util/process.h"

#include "util/fork_handlers.h"
#include "util/warning.h"

#include <chrono>

#include <sys/random.h>
#include <unistd.h>

namespace gaudi::util {

std::atomic<unsigned> detail::process_generation{0};

namespace {

std::atomic<uint64_t> identity{0};

void count_fork()
{
    detail::process_generation.fetch_add(1);
    identity.store(0);
}

} // namespace

uint64_t process_identity()
{
    uint64_t known = identity.load();
    if (known == 0) {
        uint64_t fresh = 0;
        if (getrandom(&fresh, sizeof(fresh), 0) != sizeof(fresh)) {
            /* A sandbox forbids it. */
            const auto now =
                std::chrono::steady_clock::now().time_since_epoch().count();
            fresh = static_cast<uint64_t>(now) ^
                    (static_cast<uint64_t>(getpid()) << 40);
        }
        fresh |= 1;
        known = identity.compare_exchange_strong(known, fresh) ? fresh : known;
    }
    return known;
}

void count_forks()
{
    if (!run_in_children_once<count_fork>()) {
        warn("forked children will not be noticed");
    }
}

} // namespace gaudi::util
