/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/ports/calls.h"

#include "hlthunk_emulator/ports/port_engine.h"
#include "hlthunk_emulator/public.h"
#include "hlthunk_emulator/settings.h"

#include <bit>
#include <functional>

using namespace gaudi::emu;

namespace {

/* A member function of the context, as a call of the table. */
template <auto member, typename... Arguments>
int call(int context, Arguments... arguments)
{
    return port_engine::instance().with(context, [&](port_context &of) {
        return std::invoke(member, of, std::forward<Arguments>(arguments)...);
    });
}

constexpr port_calls calls = {
    .cards  = [] { return get_settings().ports ? get_settings().devices : 0; },
    .pci_id = [] { return get_settings().kind->pci_id; },
    .ports =
        [](unsigned card) {
            return static_cast<unsigned>(std::popcount(ports_of(card).enabled));
        },
    .open =
        [](unsigned card, int core_fd, uint64_t mask, int event_fd) {
            return port_engine::instance().open(card, core_fd, mask, event_fd);
        },
    .close = [](int context) { return port_engine::instance().close(context); },
    .query_device  = call<&port_context::query_device>,
    .allocate_pd   = call<&port_context::allocate_pd>,
    .free_pd       = call<&port_context::free_pd>,
    .query_port    = call<&port_context::query_port>,
    .query_port_ex = call<&port_context::query_port_ex>,
    .query_gid     = call<&port_context::query_gid>,
    .set_port      = call<&port_context::set_port>,
    .create_cq     = call<&port_context::create_cq>,
    .destroy_cq    = call<&port_context::destroy_cq>,
    .create_qp     = call<&port_context::create_qp>,
    .modify_qp     = call<&port_context::modify_qp>,
    .query_qp      = call<&port_context::query_qp>,
    .destroy_qp    = call<&port_context::destroy_qp>,
    .create_fifo   = call<&port_context::create_fifo>,
    .destroy_fifo  = call<&port_context::destroy_fifo>,
};

} // namespace

HLTHUNK_PUBLIC const port_calls *hlthunk_emu_ports()
{
    return &calls;
}
