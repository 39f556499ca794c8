#include "uct/gaudi/base/cards/adopted_nodes.h"

#include "uct/gaudi/base/cards/card.h"
#include "util/process.h"

#include <algorithm>
#include <array>

namespace gaudi::base {

namespace {

struct adopted_node {
    shim::node_identity node;
    unsigned generation = 0;
};
constinit std::array<adopted_node, max_cards> adopted_nodes{};

} // namespace

bool is_inherited(const shim::node_identity &node)
{
    return std::any_of(adopted_nodes.begin(), adopted_nodes.end(),
                       [&](const adopted_node &known) {
                           return (known.node == node) &&
                                  (known.generation !=
                                   util::process_generation());
                       });
}

void forget_adopted(const shim::node_identity &node)
{
    std::replace_if(
        adopted_nodes.begin(), adopted_nodes.end(),
        [&](const adopted_node &known) { return known.node == node; },
        adopted_node{});
}

void remember_adopted(const shim::node_identity &node)
{
    forget_adopted(node);
    const auto free =
        std::find_if(adopted_nodes.begin(), adopted_nodes.end(),
                     [](const adopted_node &known) {
                         return known.node == shim::node_identity();
                     });
    if (free != adopted_nodes.end()) {
        *free = {node, util::process_generation()};
    }
}

} // namespace gaudi::base
