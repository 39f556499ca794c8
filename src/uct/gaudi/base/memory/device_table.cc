#include "uct/gaudi/base/memory/device_table.h"

#include "uct/gaudi/base/cards/device_list.h"
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/memory/application/driver_hooks.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/process.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <shared_mutex>
#include <thread>

#include <unistd.h>

namespace gaudi::base {

namespace {

/* UCX tries things and says beforehand that they may fail. */
ucs_log_level_t failure_level(bool quiet)
{
    return quiet ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR;
}

/* UCP registers ranges whose ends are multiples of this. */
constexpr size_t ucp_alignment = 16;

} // namespace

std::atomic<device_table *> device_table::current_{nullptr};

device_table &device_table::instance()
{
    /* Never destroyed: UCX's own clean-up order is not ours to know. */
    device_table *known = current_.load(std::memory_order_acquire);
    if (known == nullptr) {
        util::count_forks();
        static const bool renewed =
            util::run_in_children([] { current_.store(nullptr); });
        if (!renewed) {
            throw std::bad_alloc();
        }
        auto fresh = std::make_unique<device_table>();
        if (current_.compare_exchange_strong(known, fresh.get())) {
            known = fresh.release();
        }
    }
    return *known;
}

bool device_table::any_card()
{
    const shim::driver *loaded = driver();
    return (loaded != nullptr) && !shim::list_cards(*loaded).empty();
}

ucs_status_t device_table::open()
{
    hook_loaded_driver();
    bool first;
    announcements news;
    {
        std::lock_guard<std::mutex> opening(opening_lock_);
        std::unique_lock<std::mutex> guard(cards_lock_);
        first = (users_ == 0);
        if (first) {
            ucs_status_t status = open_cards(news, guard);
            if (status != UCS_OK) {
                forget_cards();
                return status;
            }
            reset_wait_.over();
        }
        ++users_;
    }
    announce(news);
    if (!first) {
        look_around();
    }
    return UCS_OK;
}

/* Sleep a little, if the time for cards in reset is not over. Without a card
 * this table is one that nobody has opened, and the application may open and
 * close cards of its own meanwhile. With one it could get ours, and return it,
 * which has to wait until they have a user. */
bool device_table::wait_for_reset(std::unique_lock<std::mutex> &cards_guard)
{
    const auto pause = reset_wait_.next_pause(reset_wait::clock::now());
    if (pause == reset_wait::clock::duration::zero()) {
        return false;
    }
    const bool unlocked = (card_count_ == 0);
    if (unlocked) {
        cards_guard.unlock();
    }
    std::this_thread::sleep_for(pause);
    if (unlocked) {
        cards_guard.lock();
    }
    return true;
}

ucs_status_t device_table::open_cards(announcements &news,
                                      std::unique_lock<std::mutex> &cards_guard)
{
    missing_                   = {};
    const shim::driver *loaded = driver();
    if (loaded == nullptr) {
        return UCS_ERR_NO_DEVICE;
    }

    const std::vector<shim::card_info> box = shim::list_cards(*loaded);
    if (box.empty()) {
        ucs_debug("gaudi: the driver shows no card");
        return UCS_ERR_NO_DEVICE;
    }
    const std::string setting =
        "UCX_GAUDI_DEVICES=" + std::string(config().devices) + ": ";
    const shim::visible_cards visible =
        shim::find_visible_cards(shim::visibility_variables::read(), box);
    if (!visible.error.empty()) {
        return refuse_setting(visible.error);
    }
    const device_selection wanted = select_devices(config().devices, visible);
    if (!wanted.error.empty()) {
        return refuse_setting(setting + wanted.error);
    }

    /* What the application has open comes first: it is there on purpose. */
    const bool automatic = (std::strcmp(config().devices, "auto") == 0);
    bool enough          = false;
    const auto adopt     = [&] {
        drop_closed(news);
        adopt_open_cards(*loaded, box, visible, news);
        enough = automatic && (card_count_ > 0);
    };
    adopt();
    /* A card in reset is tried again: at once when all are wanted, which come
     * in the user's order, else when the others have been tried. */
    const bool all             = (wanted.wanted == wanted.cards.size());
    std::vector<size_t> places = wanted.cards;
    size_t got                 = 0;
    for (size_t i = 0; i < places.size(); ++i) {
        const size_t place = places[i];
        if ((got == wanted.wanted) || enough) {
            break;
        }
        const shim::visible_card &next = visible.cards[place];
        const std::string &bus_id      = next.info.bus_id;
        if (find_adopted(bus_id) != nullptr) {
            ++got;
            continue;
        }
        std::unique_ptr<shim::card> opened;
        int ret                = loaded->open(bus_id, opened);
        const bool first_round = !all && (i < wanted.cards.size());
        if ((ret == -EAGAIN) && (first_round || wait_for_reset(cards_guard))) {
            if (!first_round && (card_count_ == 0)) {
                adopt();
            }
            if (all) {
                --i;
            } else {
                places.push_back(place);
            }
            continue;
        }
        if (ret == -EBUSY) {
            missing_.taken.push_back(next);
            ucs_debug("%s (%s) is in use by another process",
                      next.name().c_str(), bus_id.c_str());
            continue;
        }
        if (ret != 0) {
            const std::string text =
                next.name() + " (" + bus_id + ") cannot be opened: " +
                ((ret == -EAGAIN) ? "it is in reset (UCX_GAUDI_RESET_TIMEOUT)"
                                  : std::strerror(-ret));
            if (is_news(text)) {
                ucs_warn("%s", text.c_str());
            }
            continue;
        }
        shim::node_identity node;
        (void)shim::identify(opened->fd(), node);
        add_card(std::make_unique<card>(next, card_count_, std::move(opened)),
                 node, false, news);
        ucs_debug("%s (%s) opened", next.name().c_str(), bus_id.c_str());
        ++got;
    }

    if (wanted.named && (got < wanted.wanted)) {
        const std::string text = setting + std::to_string(got) + " of " +
                                 std::to_string(wanted.wanted) +
                                 " cards are free";
        missing_.told = true;
        if (is_news(text)) {
            ucs_error("%s%s%s", text.c_str(),
                      missing_.taken.empty() ? "" : "; taken: ",
                      describe_taken(*loaded, missing_.taken).c_str());
        }
        return UCS_ERR_BUSY;
    }
    if (card_count_ == 0) {
        const size_t busy = missing_.taken.size();
        ucs_diag("gaudi: none of %zu cards can be used, %zu are in use by "
                 "other processes",
                 wanted.cards.size(), busy);
        missing_.told = (busy == 0) && !wanted.cards.empty();
        missing_.why  = why_none(wanted.cards.size(), busy, box.size());
        return (busy > 0) ? UCS_ERR_BUSY : UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

bool device_table::join()
{
    unsigned users = users_;
    while ((users > 0) && !users_.compare_exchange_weak(users, users + 1)) {}
    return users > 0;
}

/* One user less, unless it is the last one. */
bool device_table::leave_to_others()
{
    unsigned users = users_;
    while ((users > 1) && !users_.compare_exchange_weak(users, users - 1)) {}
    return users > 1;
}

void device_table::close()
{
    if (leave_to_others()) {
        return;
    }
    std::lock_guard<std::mutex> guard(cards_lock_);
    while (!leave_to_others()) {
        size_t allocations;
        size_t registrations;
        {
            std::shared_lock<util::rw_spinlock> memory_guard(memory_lock_);
            allocations   = device_memory_.size() - of_application_;
            registrations = host_memory_.size() + gone_;
        }
        if (allocations + registrations > 0) {
            /* They refer to the cards, which therefore stay open. */
            ucs_warn("gaudi: %zu allocations and %zu registrations were not "
                     "released",
                     allocations, registrations);
            return;
        }
        unsigned last = 1;
        if (users_.compare_exchange_strong(last, 0)) {
            forget_cards();
            return;
        }
    }
}

card *device_table::find_card(const char *name) const
{
    for (const auto &candidate : cards()) {
        if (!candidate->is_lost() && (candidate->name() == name)) {
            return candidate.get();
        }
    }
    return nullptr;
}

card &device_table::card_for_hint(const void *hint) const
{
    const auto address = reinterpret_cast<uintptr_t>(hint);
    {
        std::shared_lock<util::rw_spinlock> guard(memory_lock_);
        const device_memory *near = resolve(address, address).memory;
        if (near != nullptr) {
            return *near->owner;
        }
    }
    card *usable = nullptr;
    for (const auto &candidate : cards()) {
        if (candidate->is_lost()) {
            continue;
        }
        if (candidate->window_contains(address)) {
            return *candidate;
        }
        usable = (usable == nullptr) ? candidate.get() : usable;
    }
    return (usable != nullptr) ? *usable : *cards().front();
}

ucs_status_t device_table::allocate(card &owner, size_t length, bool quiet,
                                    device_memory *&memory_p)
{
    auto memory   = std::make_unique<device_memory>();
    memory->owner = &owner;

    int ret = owner.pool().allocate(length, memory->block, memory->start);
    if (ret != 0) {
        ucs_log(failure_level(quiet),
                "%s: cannot allocate %zu bytes of device memory: %s",
                owner.name().c_str(), length, std::strerror(-ret));
        return to_status(ret);
    }
    memory->end     = memory->start + length;
    memory->backing = memory->block;
    bool taken;
    {
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        taken =
            device_memory_.find_overlap(memory->start, memory->end) != nullptr;
        if (!taken) {
            device_memory_.insert(*memory);
        }
    }
    if (taken) {
        /* A driver need not follow hints. */
        ucs_log(failure_level(quiet),
                "%s: the driver gave %zu bytes at %#lx, which are addresses of "
                "another card's memory, too",
                owner.name().c_str(), length, memory->start);
        owner.pool().release(*memory->block, memory->start, length, false);
        return UCS_ERR_NO_MEMORY;
    }
    memory_p = memory.release();
    announce_allocation(reinterpret_cast<void *>(memory_p->start), length);
    return UCS_OK;
}

void device_table::free(device_memory *memory)
{
    {
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        device_memory_.erase(*memory);
    }
    /* Before the address can be given out again. */
    announce_gone(memory->start, memory->end);
    end(*memory);
}

/* No address leads to it any more, but registrations may still refer to it. */
void device_table::end(device_memory &memory)
{
    unsigned registrations;
    {
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        memory.gone   = true;
        registrations = memory.registrations;
        gone_ += (registrations > 0) ? 1 : 0;
    }
    if (registrations == 0) {
        destroy(memory);
    } else {
        ucs_debug("gaudi: %lu bytes of device memory at %#lx are kept for %u "
                  "registrations",
                  memory.end - memory.start, memory.start, registrations);
    }
}

void device_table::destroy(device_memory &memory)
{
    if (memory.of_application) {
        delete static_cast<application_memory *>(&memory);
        return;
    }
    if (!memory.is_imported()) {
        memory.owner->pool().release(*memory.block, memory.start,
                                     memory.end - memory.start,
                                     memory.exported);
    }
    delete &memory;
}

host_memory *device_table::register_host(void *address, size_t length)
{
    auto *memory   = new host_memory(address, length);
    memory->listed = true;
    std::lock_guard<util::rw_spinlock> guard(memory_lock_);
    host_memory_.insert(*memory);
    return memory;
}

void device_table::deregister_host(host_memory *memory)
{
    withdraw_host(*memory);
    memory->put();
}

void device_table::withdraw_host(host_memory &memory)
{
    std::lock_guard<util::rw_spinlock> guard(memory_lock_);
    if (memory.listed) {
        host_memory_.erase(memory);
        memory.listed = false;
    }
}

bool device_table::withdraw_unmapped(uint64_t start, uint64_t end)
{
    {
        std::shared_lock<util::rw_spinlock> guard(memory_lock_);
        if (host_memory_.find_overlap(start, end) == nullptr) {
            return false;
        }
    }
    bool any = false;
    std::lock_guard<util::rw_spinlock> guard(memory_lock_);
    while (util::interval_node *node = host_memory_.find_overlap(start, end)) {
        host_memory_.erase(*node);
        static_cast<host_memory *>(node)->listed = false;
        any                                      = true;
    }
    return any;
}

device_memory *device_table::register_device(const void *address, size_t length)
{
    const auto start = reinterpret_cast<uintptr_t>(address);

    std::shared_lock<util::rw_spinlock> guard(memory_lock_);
    device_memory *memory = resolve(start, start + length).memory;
    if ((memory == nullptr) && (length >= ucp_alignment) &&
        ((start + length) % ucp_alignment == 0)) {
        /* UCP rounds up what it registers. The driver has mapped whole pages,
         * and nobody else is given the rest. */
        memory = resolve(start, start + length - (ucp_alignment - 1)).memory;
    }
    if (memory != nullptr) {
        ++memory->registrations;
    }
    return memory;
}

void device_table::deregister_device(device_memory *memory)
{
    bool last;
    {
        std::lock_guard<util::rw_spinlock> guard(memory_lock_);
        last = (--memory->registrations == 0) && memory->gone;
        gone_ -= last ? 1 : 0;
    }
    if (last) {
        destroy(*memory);
    }
}

ucs_status_t device_table::find(const void *address, size_t length,
                                memory_location &location_p)
{
    const auto start   = reinterpret_cast<uintptr_t>(address);
    const uint64_t end = start + length;

    std::shared_lock<util::rw_spinlock> guard(memory_lock_);
    if (!is_device_address(address)) {
        auto *mapped =
            static_cast<host_memory *>(host_memory_.find_cover(start, end));
        if (mapped != nullptr) {
            mapped->get();
        }
        location_p        = {};
        location_p.mapped = mapped;
        return UCS_OK;
    }
    const device_memory *memory = resolve(start, end).memory;
    if (memory == nullptr) {
        return UCS_ERR_INVALID_ADDR;
    }
    location_p          = {};
    location_p.kind     = memory_kind::device;
    location_p.owner    = memory->owner;
    location_p.backing  = memory->backing;
    location_p.imported = memory->is_imported();
    return UCS_OK;
}

bool device_table::query(const void *address, size_t length, uint64_t &base_p,
                         size_t &length_p, card *&owner_p, bool *exact_p) const
{
    const auto start = reinterpret_cast<uintptr_t>(address);

    std::shared_lock<util::rw_spinlock> guard(memory_lock_);
    const device_memory *memory = resolve(start, start + length).memory;
    if (memory == nullptr) {
        return false;
    }
    base_p   = memory->start;
    length_p = memory->end - memory->start;
    owner_p  = memory->owner;
    if (exact_p != nullptr) {
        *exact_p = (memory != &states_[memory->owner->slot()].unseen);
    }
    return true;
}

void device_table::collect_allocations(
    std::vector<std::pair<void *, size_t>> &allocations) const
{
    /* Room first: the lock is held across no allocation. */
    for (;;) {
        size_t count;
        {
            std::shared_lock<util::rw_spinlock> guard(memory_lock_);
            count = device_memory_.size() + unseen_;
        }
        allocations.reserve(count);
        std::shared_lock<util::rw_spinlock> guard(memory_lock_);
        if (device_memory_.size() + unseen_ > allocations.capacity()) {
            continue;
        }
        /* First, so that what is known exactly is told over it. */
        for (size_t i = 0; i < card_count_; ++i) {
            if (states_[i].has_unseen) {
                const device_memory &all = states_[i].unseen;
                allocations.emplace_back(reinterpret_cast<void *>(all.start),
                                         all.end - all.start);
            }
        }
        device_memory_.for_each([&](const util::interval_node &node) {
            allocations.emplace_back(reinterpret_cast<void *>(node.start),
                                     node.end - node.start);
        });
        return;
    }
}

} // namespace gaudi::base
