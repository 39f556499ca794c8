#include "uct/gaudi/base/process.h"

#include "hlthunk_shim/fork_handlers.h"
#include "uct/gaudi/base/ucx.h"

extern "C" {
#include <ucs/sys/sys.h>
}

namespace gaudi::base {

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
        const uint64_t fresh =
            ucs_generate_uuid(reinterpret_cast<uintptr_t>(&identity)) | 1;
        known = identity.compare_exchange_strong(known, fresh) ? fresh : known;
    }
    return known;
}

void count_forks()
{
    static const bool counted = shim::run_in_children(count_fork);
    if (!counted) {
        ucs_warn("gaudi: forked children will not be noticed");
    }
}

} // namespace gaudi::base
