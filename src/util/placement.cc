/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/placement.h"

#include "util/made_once.h"

#include <algorithm>
#include <array>
#include <climits>

#include <numa.h>
#include <numaif.h>

namespace gaudi::util {

namespace {

constexpr unsigned max_nodes     = 1024;
constexpr unsigned bits_per_word = sizeof(unsigned long) * CHAR_BIT;

/* The bits of a mask below an end. Frees the mask. */
std::vector<unsigned> take_bits(bitmask *mask, unsigned long end)
{
    std::vector<unsigned> bits;
    for (unsigned bit = 0; bit < std::min(mask->size, end); ++bit) {
        if (numa_bitmask_isbitset(mask, bit) != 0) {
            bits.push_back(bit);
        }
    }
    numa_bitmask_free(mask);
    return bits;
}

std::vector<unsigned> read_memory_nodes()
{
    /* Not by numa_get_mems_allowed, which prints what a container forbids. */
    bitmask *found = numa_allocate_nodemask();
    if (get_mempolicy(nullptr, found->maskp, found->size + 1, nullptr,
                      MPOL_F_MEMS_ALLOWED) != 0) {
        numa_bitmask_clearall(found);
    }
    return take_bits(found, max_nodes);
}

/* Empty when the kernel does not tell. */
cpu_set_t cpus_of(unsigned node)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    bitmask *found = numa_allocate_cpumask();
    if (numa_node_to_cpus(static_cast<int>(node), found) != 0) {
        numa_bitmask_clearall(found);
    }
    for (const unsigned cpu : take_bits(found, CPU_SETSIZE)) {
        CPU_SET(cpu, &cpus);
    }
    return cpus;
}

made_once<std::vector<unsigned>> known_nodes;

/* What a thread that was placed ran on before. */
struct placed_thread {
    bool known = false;
    cpu_set_t before{};
    std::optional<unsigned> node;
};

} // namespace

const std::vector<unsigned> &memory_nodes()
{
    return known_nodes.get(read_memory_nodes);
}

std::optional<unsigned> choose_node(std::optional<unsigned> card,
                                    std::span<const unsigned> nodes)
{
    if (!card.has_value() || (nodes.size() < 2) ||
        (std::find(nodes.begin(), nodes.end(), *card) == nodes.end())) {
        return std::nullopt;
    }
    return card;
}

cpu_set_t choose_cpus(const cpu_set_t &allowed, const cpu_set_t &local)
{
    cpu_set_t both;
    CPU_AND(&both, &allowed, &local);
    return (CPU_COUNT(&both) > 0) ? both : allowed;
}

void place_memory(void *data, size_t size, std::optional<unsigned> card)
{
    const auto node = choose_node(card, memory_nodes());
    if (!node.has_value()) {
        return;
    }
    /* Nor by numa_tonode_memory. */
    std::array<unsigned long, max_nodes / bits_per_word> mask{};
    mask[*node / bits_per_word] = 1ul << (*node % bits_per_word);
    (void)mbind(data, size, MPOL_PREFERRED, mask.data(), max_nodes, 0);
}

void place_thread(std::optional<unsigned> card)
{
    thread_local placed_thread self;
    const auto node = choose_node(card, memory_nodes());
    if (node == self.node) {
        return;
    }
    if (!self.known &&
        (sched_getaffinity(0, sizeof(self.before), &self.before) != 0)) {
        return;
    }
    self.known           = true;
    const cpu_set_t cpus = node.has_value()
                               ? choose_cpus(self.before, cpus_of(*node))
                               : self.before;
    if (sched_setaffinity(0, sizeof(cpus), &cpus) == 0) {
        self.node = node;
    }
}

} // namespace gaudi::util
