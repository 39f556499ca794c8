#include "uct/gaudi/base/memory/application/application_memory.h"

namespace gaudi::base {

void application_registry::add_allocation(const shim::node_identity &node,
                                          int fd, uint64_t handle,
                                          uint64_t size)
{
    const std::lock_guard<std::mutex> guard(lock_);
    allocations_[{node, handle}] = {fd, size};
}

void application_registry::remove_allocation(const shim::node_identity &node,
                                             uint64_t handle)
{
    const std::lock_guard<std::mutex> guard(lock_);
    allocations_.erase({node, handle});
}

uint64_t application_registry::size_of(const shim::node_identity &node,
                                       uint64_t handle)
{
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = allocations_.find({node, handle});
    return (found != allocations_.end()) ? found->second.size : 0;
}

uint64_t application_registry::allocated_bytes(const shim::node_identity &node,
                                               uint64_t page)
{
    const std::lock_guard<std::mutex> guard(lock_);
    uint64_t bytes = 0;
    for (auto entry = allocations_.lower_bound({node, 0});
         (entry != allocations_.end()) && (entry->first.first == node);
         ++entry) {
        bytes += (entry->second.size + page - 1) / page * page;
    }
    return bytes;
}

void application_registry::add(std::unique_ptr<application_memory> memory,
                               const visitor &enter)
{
    const std::lock_guard<std::mutex> guard(lock_);
    auto &entry = mappings_[{memory->node, memory->start}];
    entry       = std::move(memory);
    enter(*entry);
}

std::unique_ptr<application_memory>
application_registry::take(const shim::node_identity &node, uint64_t va)
{
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = mappings_.find({node, va});
    if (found == mappings_.end()) {
        return nullptr;
    }
    auto taken = std::move(found->second);
    mappings_.erase(found);
    return taken;
}

std::vector<std::unique_ptr<application_memory>>
application_registry::take_all(const selection &which,
                               std::vector<uint64_t> *handles_p)
{
    std::vector<std::unique_ptr<application_memory>> taken;
    const std::lock_guard<std::mutex> guard(lock_);
    for (auto entry = mappings_.begin(); entry != mappings_.end();) {
        if (which(entry->second->node, entry->second->fd)) {
            taken.push_back(std::move(entry->second));
            entry = mappings_.erase(entry);
        } else {
            ++entry;
        }
    }
    for (auto entry = allocations_.begin(); entry != allocations_.end();) {
        if (which(entry->first.first, entry->second.fd)) {
            if (handles_p != nullptr) {
                handles_p->push_back(entry->first.second);
            }
            entry = allocations_.erase(entry);
        } else {
            ++entry;
        }
    }
    return taken;
}

void application_registry::for_each(const visitor &visit)
{
    const std::lock_guard<std::mutex> guard(lock_);
    for (const auto &entry : mappings_) {
        visit(*entry.second);
    }
}

void application_registry::collect_nodes(std::vector<shim::open_node> &nodes)
{
    const std::lock_guard<std::mutex> guard(lock_);
    for (const auto &entry : mappings_) {
        nodes.push_back({entry.second->fd, entry.second->node});
    }
    for (const auto &entry : allocations_) {
        nodes.push_back({entry.second.fd, entry.first.first});
    }
}

} // namespace gaudi::base
