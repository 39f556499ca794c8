/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The routes of bytes between cards of different processes: the cards' own
 * ports, where they lead from one to the other, and host memory, which every
 * pair has. UCX_GAUDI_IPC_ROUTES says in which order they are tried.
 *
 * Any thread.
 */
#pragma once

#include "hlthunk_shim/discovery/routes.h"
#include "uct/gaudi/base/cards/card.h"

#include <cstddef>
#include <string>

namespace gaudi::base {

/** Best first. */
class route_list {
public:
    constexpr route_list() = default;
    explicit constexpr route_list(shim::wire only) { add(only); }

    constexpr void add(shim::wire next) { routes_[count_++] = next; }
    [[nodiscard]] const shim::wire *begin() const { return routes_; }
    [[nodiscard]] const shim::wire *end() const { return routes_ + count_; }

    [[nodiscard]] bool has(shim::wire wanted) const
    {
        for (const shim::wire each : *this) {
            if (each == wanted) {
                return true;
            }
        }
        return false;
    }

private:
    shim::wire routes_[2]{};
    size_t count_ = 0;
};

/** The routes of a pair of cards; stays until the process ends. */
struct pair_routes {
    pci_address from;
    pci_address to;
    route_list all;
};

/** The routes from a card of this process to a card of another one.
 *  @param from       nullptr: this process has no card.
 *  @param module_to  The module id of the other one. */
[[nodiscard]] const pair_routes &find_routes(const card *from, pci_address to,
                                             unsigned module_to);

/** The ports of a card of this process. @return nullptr, and why. */
[[nodiscard]] shim::port_device *ports_of(const card &of, std::string &why_p);

/** Whether UCX_GAUDI_IPC_ROUTES lets bytes take a route at all. */
[[nodiscard]] bool may_go_over(shim::wire wanted);

} // namespace gaudi::base
