#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/memory/application/application_memory.h"
#include "uct/gaudi/base/memory/application/driver_hooks.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/memory_map.h"

namespace gaudi::base {

std::span<card_events &(*const)()> card_events::rooms()
{
    static constexpr std::array<card_events &(*)(), 4> all = {
        []() -> card_events & { return application_registry::instance(); },
        []() -> card_events & { return memory_map::instance(); },
        device_pool::events, driver_hook_events};
    return all;
}

} // namespace gaudi::base
