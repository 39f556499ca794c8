/**
 * Device memory that the application got from the driver library itself.
 *
 * The registry knows what the hooks have seen: allocations and mappings, by the
 * open card they were made on, whether UCX uses that card or not. Mappings are
 * in the memory map, and lead to their card as long as that is open here. What
 * the application has on a card that it closes goes with it.
 *
 * One per process. Threads: any, behind one mutex, which is held across small
 * allocations and the lock of the memory map, no driver call and no UCM event,
 * and which nothing that UCM calls takes. The card table's events come under
 * its cards_lock_.
 */
#pragma once

#include "hlthunk_shim/cards/open_nodes.h"
#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/memory/memory.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gaudi::base {

/** A mapping that the application made, of the size that it allocated. Never
 *  unmapped by us. */
struct application_memory final : device_memory {
    shim::node_identity node;              /**< its card, open */
    int fd = -1;                           /**< through which it was mapped */
    std::unique_ptr<device_backing> whole; /**< once its card is known */
    bool was_shared = false; /**< others may have it imported until a little
                                  after they were told of its end */
};

class application_registry final : public card_events {
    using key = std::pair<shim::node_identity, uint64_t>;

    struct allocation {
        int fd;
        uint64_t size;
    };

    using allocation_map = std::map<key, allocation>; /* by handle */

public:
    /** That of this process; a forked child has another than its parent. */
    static application_registry &instance();

    /** Whether all that is done through the library that this module uses is
     *  reported, by whomever. */
    static void expect_all(bool reported);

    /* What the hooks of the driver report, see driver_hooks.h; each on the
     * thread that made the call, and after it unless said otherwise. */
    void allocated(int fd, uint64_t handle, uint64_t size);
    /** It is about to free memory, whose handle can be another's as soon as
     * that is done. @return What to give to @ref not_freed. */
    [[nodiscard]] allocation_map::node_type freeing(int fd, uint64_t handle);
    /** The driver has refused to. */
    void not_freed(allocation_map::node_type kept);
    void mapped(int fd, uint64_t handle, uint64_t va);
    /** It is about to unmap an address. @return What to give to @ref unmapped;
     *  nullptr when it is not known. */
    [[nodiscard]] std::unique_ptr<application_memory> unmapping(int fd,
                                                                uint64_t va);
    /** @param done  The driver has done so. */
    void unmapped(std::unique_ptr<application_memory> memory, bool done);

    void card_added(card &added, const shim::node_identity &node, bool adopted,
                    deferred &later) override;
    void card_lost(card &lost, const shim::node_identity &node,
                   deferred &later) override;
    void node_closed(const shim::node_identity &node, int fd, card *lent,
                     deferred &later) override;
    void look_for_closed_nodes(deferred &later) override;
    void cards_closing() override;

private:
    using mapping_map =
        std::map<key, std::unique_ptr<application_memory>>; /* by va */

    /* What there was through a descriptor. */
    struct remains {
        mapping_map mappings;
        allocation_map allocations;
    };

    void add(std::unique_ptr<application_memory> memory);
    void enter(std::unique_ptr<application_memory> memory);
    void add_block(card &adopted, const shim::node_identity &node,
                   const shim::memory_block &block, deferred &later);
    void claim(application_memory &memory);
    [[nodiscard]] bool has_seen_all(const card &adopted,
                                    const shim::node_identity &node);
    remains take_all(const shim::node_identity &node, int fd);
    static void drop(remains &dropped, deferred &later);

    std::mutex lock_;
    allocation_map allocations_;
    mapping_map mappings_;
};

} // namespace gaudi::base
