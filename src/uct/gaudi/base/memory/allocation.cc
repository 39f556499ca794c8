#include "uct/gaudi/base/memory/allocation.h"

#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "uct/gaudi/base/ucx/status.h"

#include <cstring>
#include <memory>

namespace gaudi::base {

namespace {

/* UCX tries things and says beforehand that they may fail. */
ucs_log_level_t failure_level(bool quiet)
{
    return quiet ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR;
}

/* A part of a pool's block. */
struct allocated_memory final : device_memory {
    ~allocated_memory() override
    {
        if (block != nullptr) {
            (void)guarded([this] {
                device_pool::of(*owner).release(*block, start, end - start,
                                                exported);
                return UCS_OK;
            });
        }
    }

    device_block *block = nullptr;
};

} // namespace

card &card_for_hint(const void *hint)
{
    card *usable;
    uint64_t start;
    size_t length;
    if (memory_map::instance().query(hint, 0, start, length, usable)) {
        return *usable;
    }
    const auto cards = card_table::instance().cards();
    usable           = nullptr;
    for (const auto &candidate : cards) {
        if (candidate->is_lost()) {
            continue;
        }
        if (device_pool::window_contains(*candidate,
                                         reinterpret_cast<uintptr_t>(hint))) {
            return *candidate;
        }
        usable = (usable == nullptr) ? candidate.get() : usable;
    }
    return (usable != nullptr) ? *usable : *cards.front();
}

ucs_status_t allocate(card &owner, size_t length, bool quiet,
                      device_memory *&memory_p)
{
    auto memory   = std::make_unique<allocated_memory>();
    memory->owner = &owner;

    int ret =
        device_pool::of(owner).allocate(length, memory->block, memory->start);
    if (ret != 0) {
        ucs_log(failure_level(quiet),
                "%s: cannot allocate %zu bytes of device memory: %s",
                owner.name().c_str(), length, std::strerror(-ret));
        return to_status(ret);
    }
    memory->end     = memory->start + length;
    memory->backing = memory->block;
    if (!memory_map::instance().add(*memory)) {
        /* A driver need not follow hints. */
        ucs_log(failure_level(quiet),
                "%s: the driver gave %zu bytes at %#lx, which are addresses of "
                "another card's memory, too",
                owner.name().c_str(), length, memory->start);
        return UCS_ERR_NO_MEMORY;
    }
    memory_p = memory.release();
    announce_allocation(reinterpret_cast<void *>(memory_p->start), length);
    return UCS_OK;
}

} // namespace gaudi::base
