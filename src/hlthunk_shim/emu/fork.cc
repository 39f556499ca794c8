#include "hlthunk_shim/emu/fork.h"

#include "hlthunk_shim/emu/card.h"
#include "hlthunk_shim/emu/engine_threads.h"
#include "hlthunk_shim/emu/nodes.h"
#include "hlthunk_shim/emu/settings.h"
#include "util/fork_handlers.h"

#include <new>

namespace gaudi::emu {

namespace {

void after_in_child()
{
    engine_threads::instance().after_fork_in_child();
    for (unsigned i = 0; i < max_cards; ++i) {
        card::at(i).after_fork_in_child();
    }
    inherit_nodes();
}

} // namespace

void prepare_for_fork()
{
    /* Now, and not for the first time in a handler. */
    engine_threads::instance();
    card::at(0);

    static const bool prepared = util::run_in_children(after_in_child);
    if (!prepared) {
        throw std::bad_alloc();
    }
}

} // namespace gaudi::emu
