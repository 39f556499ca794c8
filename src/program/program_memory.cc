/* SPDX-License-Identifier: BSD-3-Clause */
#include "program/program_memory.h"

#include <utility>

namespace gaudi {

using base::card_table;

bool program_memory::is_in_use() const
{
    return (calls_ > 0) || (uses_ != decltype(uses_){}) ||
           !allocations_.empty() || (host_.size() > 0);
}

ucs_status_t program_memory::enter(bool opens, const char *card)
{
    {
        std::lock_guard<std::mutex> guard(lock_);
        ++calls_; /* from here on nobody lets go of the cards */
        if (!opens ||
            (opened_.cards && ((card == nullptr) ||
                               (opened_.cards.find_named(card) != nullptr)))) {
            return UCS_OK;
        }
    }
    return base::guarded([&] { return open(card); });
}

ucs_status_t program_memory::open(const char *card)
{
    auto &table = card_table::instance();
    base::held_cards cards;
    const ucs_status_t status = table.open(cards, card);
    const bool none           = (cards.first() == nullptr);
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (opened_.cards) {
            return status;
        }
        if (status == UCS_OK) {
            opened_.cards    = std::move(cards);
            opened_.is_fresh = true;
        }
    }
    if ((status != UCS_OK) && none) {
        table.explain_missing_card();
    }
    return status;
}

ucs_status_t program_memory::read_config(config_ptr &config_p)
{
    uct_md_config_t *config;
    const ucs_status_t status =
        uct_md_config_read(&ipc::component(), nullptr, nullptr, &config);
    if (status == UCS_OK) {
        config_p.reset(reinterpret_cast<ipc::memory_domain::config *>(config));
    }
    return status;
}

ucs_status_t program_memory::open_ipc(const ipc::memory_domain::config &config)
{
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (opened_.ipc != nullptr) {
            return UCS_OK;
        }
    }
    std::unique_ptr<ipc::memory_domain> made;
    const ucs_status_t status = ipc::memory_domain::open(config, made);
    if (status != UCS_OK) {
        return status;
    }
    ipc_ptr fresh(made.release());
    std::lock_guard<std::mutex> guard(lock_);
    if (opened_.ipc == nullptr) {
        opened_.is_fresh |= !opened_.cards;
        opened_.ipc = std::move(fresh);
    }
    return UCS_OK;
}

void program_memory::leave(ucs_status_t status)
{
    opened last; /* goes without the lock */
    std::lock_guard<std::mutex> guard(lock_);
    --calls_;
    if (status == UCS_OK) {
        opened_.is_fresh = false;
    } else if (opened_.is_fresh && !is_in_use()) {
        last = std::exchange(opened_, {});
    }
}

ucs_status_t program_memory::close()
{
    opened last;
    std::lock_guard<std::mutex> guard(lock_);
    if (is_in_use()) {
        const auto [imports, streams, exports] = uses_;
        ucs_error("gaudi: the cards are in use: %zu allocations, %d imports, "
                  "%u calls, %d streams, %d exports, %zu registrations of host "
                  "memory",
                  allocations_.size(), imports, calls_, streams, exports,
                  host_.size());
        return UCS_ERR_BUSY;
    }
    last = std::exchange(opened_, {});
    return UCS_OK;
}

void program_memory::add(base::device_memory &memory)
{
    std::lock_guard<std::mutex> guard(lock_);
    allocations_.emplace(reinterpret_cast<void *>(memory.start), &memory);
}

base::device_memory *program_memory::take(void *address)
{
    std::lock_guard<std::mutex> guard(lock_);
    const auto found = allocations_.extract(address);
    return found.empty() ? nullptr : found.mapped();
}

/* Under the lock: what begins at an address. */
static base::host_region *find_start(const util::interval_tree &host,
                                     uint64_t start)
{
    util::interval_node *found = nullptr;
    host.for_each_overlap(start, start + 1, [&](util::interval_node &each) {
        found = (each.start == start) ? &each : nullptr;
        return found == nullptr;
    });
    return static_cast<base::host_region *>(found);
}

bool program_memory::add_host(base::host_region &memory)
{
    std::lock_guard<std::mutex> guard(lock_);
    const bool is_new = (find_start(host_, memory.start) == nullptr);
    if (is_new) {
        host_.insert(memory);
    }
    return is_new;
}

base::host_region *program_memory::take_host(const void *address)
{
    std::lock_guard<std::mutex> guard(lock_);
    auto *found = find_start(host_, reinterpret_cast<uintptr_t>(address));
    if (found != nullptr) {
        host_.erase(*found);
    }
    return found;
}

base::held_registration program_memory::find_host(const void *address,
                                                  size_t length)
{
    const auto start = reinterpret_cast<uintptr_t>(address);
    std::lock_guard<std::mutex> guard(lock_);
    auto *found = static_cast<base::host_region *>(
        host_.find_cover(start, start + length));
    return base::held_registration(
        ((found != nullptr) && found->hold()) ? found : nullptr);
}

void program_memory::count(use what, int more)
{
    std::lock_guard<std::mutex> guard(lock_);
    uses_[static_cast<size_t>(what)] += more;
}

static ucs_status_t
make_engine(const base::transfer_options &options,
            std::unique_ptr<base::transfer_engine> &engine_p)
{
    const base::held_cards cards = card_table::instance().cards();
    base::card *home             = cards.first();
    return (home != nullptr)
               ? base::transfer_engine::create(*home, options, engine_p)
               : base::transfer_engine::create(options, engine_p);
}

ucs_status_t
program_memory::prepare_engine(bool opens,
                               const base::transfer_options &options,
                               engine_ptr &engine_p) noexcept
{
    return run(opens, nullptr, [&](program_memory &) {
        return (engine_p != nullptr) ? UCS_OK : make_engine(options, engine_p);
    });
}

/* Waits while all are in use. */
ucs_status_t program_memory::take_engine(engine_ptr &engine_p)
{
    {
        std::unique_lock<std::mutex> guard(lock_);
        engine_is_idle_.wait(guard, [this] {
            return !opened_.idle_engines.empty() ||
                   (opened_.engines < max_engines);
        });
        if (!opened_.idle_engines.empty()) {
            engine_p = std::move(opened_.idle_engines.back());
            opened_.idle_engines.pop_back();
            return UCS_OK;
        }
        opened_.idle_engines.reserve(opened_.engines +
                                     1); /* for when it comes back */
        ++opened_.engines;
    }
    const ucs_status_t status = base::guarded(
        [&] { return make_engine({.logs_paths = true}, engine_p); });
    if (status != UCS_OK) {
        put_engine(nullptr);
    }
    return status;
}

void program_memory::put_engine(engine_ptr engine)
{
    std::lock_guard<std::mutex> guard(lock_);
    if (engine != nullptr) {
        opened_.idle_engines.push_back(std::move(engine));
    } else {
        --opened_.engines;
    }
    engine_is_idle_.notify_one();
}

} // namespace gaudi
