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
 * and which nothing that UCM calls takes. What cards are opened and closed for
 * (cards/card_events.h) comes under the card table's lock.
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

class application_registry {
    using key = std::pair<shim::node_identity, uint64_t>;

    struct allocation {
        int fd;
        uint64_t size;
    };

    using allocation_map = std::map<key, allocation>; /* by handle */

public:
    /** That of this process. */
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

    /* See cards/card_events.h. */
    void card_added(card &added);
    void card_lost(const card &lost);
    void node_closed(const shim::node_identity &node, int fd, const card *lent);
    void look_for_closed_nodes();
    [[nodiscard]] std::vector<card_events::news> take_news()
    {
        return std::exchange(news_, {});
    }

    /** A card closes; mappings on it stay known, for the next opening. */
    void card_closing(const card &closing);

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
    void add_block(card &adopted, const shim::memory_block &block);
    static void claim(application_memory &memory, card &owner);
    [[nodiscard]] bool has_seen_all(const card &adopted);
    remains take_all(const shim::node_identity &node, int fd);
    void note(card_events::news::kind what, uint64_t start, uint64_t end,
              const card *lent = nullptr);

    std::mutex lock_;
    allocation_map allocations_;
    mapping_map mappings_;
    std::vector<card_events::news> news_; /* under the card table's lock */
};

} // namespace gaudi::base
