/**
 * Device memory that the application got from the driver library itself.
 *
 * The registry knows what the hooks have seen: allocations and mappings, by the
 * open card they were made on, whether UCX uses that card or not. Threads: any,
 * behind one mutex, which is held across no driver call and no UCM event, and
 * which nothing that UCM calls takes.
 */
#pragma once

#include "hlthunk_shim/cards/open_nodes.h"
#include "uct/gaudi/base/memory/device_backing.h"
#include "uct/gaudi/base/memory/memory.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gaudi::base {

/** A mapping that the application made, of the size that it allocated. Never
 *  unmapped by us. */
struct application_memory : device_memory {
    shim::node_identity node;              /**< its card, open */
    int fd = -1;                           /**< through which it was mapped */
    std::unique_ptr<device_backing> whole; /**< once its card is known */
    bool was_shared = false; /**< others may have it imported until a little
                                  after they were told of its end */
};

class application_registry {
public:
    using selection =
        std::function<bool(const shim::node_identity &node, int fd)>;
    using visitor = std::function<void(application_memory &memory)>;

    void add_allocation(const shim::node_identity &node, int fd,
                        uint64_t handle, uint64_t size);
    void remove_allocation(const shim::node_identity &node, uint64_t handle);

    /** @return Bytes of an allocation, 0 for one that was not seen. */
    [[nodiscard]] uint64_t size_of(const shim::node_identity &node,
                                   uint64_t handle);

    /** @return Bytes of all allocations on a card, each in whole pages. */
    [[nodiscard]] uint64_t allocated_bytes(const shim::node_identity &node,
                                           uint64_t page);

    /** Add a mapping. @param enter  Called with it under the mutex. */
    void add(std::unique_ptr<application_memory> memory, const visitor &enter);

    /** Take the mapping at an address out, nullptr when there is none. */
    [[nodiscard]] std::unique_ptr<application_memory>
    take(const shim::node_identity &node, uint64_t va);

    /** Take mappings out, and forget allocations. @param handles_p  Of the
     *  latter; may be NULL. */
    [[nodiscard]] std::vector<std::unique_ptr<application_memory>>
    take_all(const selection &which, std::vector<uint64_t> *handles_p);

    /** Visit all mappings under the mutex. */
    void for_each(const visitor &visit);

    /** Append the cards of allocations and mappings, with the descriptor of
     *  each. */
    void collect_nodes(std::vector<shim::open_node> &nodes);

private:
    using key = std::pair<shim::node_identity, uint64_t>;

    struct allocation {
        int fd;
        uint64_t size;
    };

    std::mutex lock_;
    std::map<key, allocation> allocations_; /* by handle */
    std::map<key, std::unique_ptr<application_memory>> mappings_; /* by va */
};

} // namespace gaudi::base
