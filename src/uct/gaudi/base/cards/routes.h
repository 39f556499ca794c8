/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The ways by which bytes get to and from a card of somebody else's, or another
 * one of this process: which there are, and in what order they are tried.
 *
 * UCX_GAUDI_IPC_ROUTES says the order. Host memory is always there, since the
 * owner's card reads and writes it; PCIe where one card's engines reach the
 * other one (hlthunk_shim/cards/routes.h). Each pair is found out once, and
 * told at info level.
 *
 * Any thread.
 */
#pragma once

#include "hlthunk_shim/cards/routes.h"
#include "uct/gaudi/base/cards/card.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace gaudi::base {

struct route {
    shim::wire over;
    bool by_owner; /**< the cards of its process copy, when they are asked;
                        else a card of ours does */
};

/** Best first. */
class route_list {
public:
    constexpr route_list() = default;
    explicit constexpr route_list(const route &only) { add(only); }

    constexpr void add(const route &next) { routes_[count_++] = next; }
    [[nodiscard]] const route *begin() const { return routes_; }
    [[nodiscard]] const route *end() const { return routes_ + count_; }

    [[nodiscard]] bool has(shim::wire wanted) const
    {
        for (const route &each : *this) {
            if (each.over == wanted) {
                return true;
            }
        }
        return false;
    }

private:
    route routes_[3]{};
    size_t count_ = 0;
};

/** What was found out for a pair; stays until the process ends. */
struct pair_routes {
    pci_address from;
    pci_address to;
    route_list all;
};

/** The routes from a card of this process to another card of the machine.
 *  @param from  nullptr: this process has no card.
 *  @param module_to  The module id of the other one; none: it is this
 * process's, and ports are not asked for. */
[[nodiscard]] const pair_routes &find_routes(const card *from, pci_address to,
                                             std::optional<unsigned> module_to);

/** The ports of a card of this process. @return nullptr, and why. */
[[nodiscard]] shim::port_device *ports_of(const card &of, std::string &why_p);

/** Whether UCX_GAUDI_IPC_ROUTES lets bytes go over a wire at all. */
[[nodiscard]] bool may_go_over(shim::wire wanted);

/** Why no card of this process may use another one's memory, by the settings;
 *  nullptr: nothing says so. */
[[nodiscard]] const char *why_no_import();

/** Whether the engines of a card of this process may use another one's memory.
 */
[[nodiscard]] bool reaches(const card &from, const card &to);

} // namespace gaudi::base
