#include "program/program_memory.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/dmabuf.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "util/host_copy.h"
#include "util/text.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gaudi {

namespace {

using base::card;
using base::card_table;
using base::memory_map;

/* Of a fill: what comes from the host. */
constexpr size_t pattern_block = 65536;

ucs_status_t check_range(const void *address, size_t length)
{
    if (memory_map::is_plausible(address, length)) {
        return UCS_OK;
    }
    ucs_error("gaudi: %zu bytes at %p are no range of memory", length, address);
    return UCS_ERR_INVALID_ADDR;
}

void repeat(char *target, size_t length, const void *pattern,
            size_t pattern_length)
{
    for (size_t at = 0; at < length; at += pattern_length) {
        std::memcpy(target + at, pattern, pattern_length);
    }
}

bool overlap(const void *one, const void *other, size_t length)
{
    const auto first  = reinterpret_cast<uintptr_t>(one);
    const auto second = reinterpret_cast<uintptr_t>(other);
    return std::max(first, second) - std::min(first, second) < length;
}

} // namespace

bool program_memory::is_in_use() const
{
    return (calls_ > 0) || (imports_ > 0) || !allocations_.empty();
}

ucs_status_t program_memory::enter(const char *card)
{
    {
        std::lock_guard<std::mutex> guard(lock_);
        ++calls_; /* from here on nobody lets go of the cards */
        if (opened_.cards && ((card == nullptr) ||
                              (opened_.cards.find_named(card) != nullptr))) {
            return UCS_OK;
        }
    }
    const ucs_status_t status =
        base::guarded([&] { return open_for_call(card); });
    if (status != UCS_OK) {
        leave(status);
    }
    return status;
}

/* In a call, which is what keeps others from letting go meanwhile. */
ucs_status_t program_memory::open_for_call(const char *card)
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

/* A call that fails leaves no cards open that it has opened. */
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

template <typename Work>
ucs_status_t program_memory::with_cards(const char *card, Work &&work)
{
    ucs_status_t status = enter(card);
    if (status == UCS_OK) {
        status = base::guarded(work);
        leave(status);
    }
    return status;
}

template <typename Work>
ucs_status_t program_memory::with_engine(Work &&work)
{
    return with_cards(nullptr, [&] {
        engine_ptr engine;
        ucs_status_t status = take_engine(engine);
        if (status == UCS_OK) {
            status = base::guarded([&] { return work(*engine); });
            put_engine(std::move(engine));
        }
        return status;
    });
}

ucs_status_t program_memory::open(const char *card)
{
    return with_cards(card, [] { return UCS_OK; });
}

ucs_status_t program_memory::close()
{
    opened last;
    std::lock_guard<std::mutex> guard(lock_);
    if (is_in_use()) {
        ucs_error("gaudi: the cards are in use: %zu allocations, %u imports, "
                  "%u calls",
                  allocations_.size(), imports_, calls_);
        return UCS_ERR_BUSY;
    }
    last = std::exchange(opened_, {});
    return UCS_OK;
}

ucs_status_t program_memory::allocate(size_t length, const char *card_name,
                                      void *&address_p)
{
    if (length == 0) {
        ucs_error("gaudi: cannot allocate 0 bytes of device memory");
        return UCS_ERR_INVALID_PARAM;
    }
    return with_cards(card_name, [&] {
        const base::held_cards cards = card_table::instance().cards();
        card *owner                  = cards.find_named(card_name);
        if (owner == nullptr) {
            ucs_error("gaudi: cannot allocate %zu bytes: %s", length,
                      (card_name == nullptr) ? "all cards of this process are "
                                               "lost"
                                             : "the card is lost");
            return UCS_ERR_NO_DEVICE;
        }
        base::device_memory *memory;
        const ucs_status_t status =
            base::allocate(*owner, length, false, memory);
        if (status != UCS_OK) {
            return status;
        }
        void *address = reinterpret_cast<void *>(memory->start);
        try {
            std::lock_guard<std::mutex> guard(lock_);
            allocations_.emplace(address, memory);
        } catch (...) {
            memory_map::instance().free(*memory);
            throw;
        }
        address_p = address;
        return UCS_OK;
    });
}

ucs_status_t program_memory::free(void *address)
{
    if (address == nullptr) {
        return UCS_OK;
    }
    base::device_memory *memory = nullptr;
    {
        std::lock_guard<std::mutex> guard(lock_);
        const auto found = allocations_.find(address);
        if (found != allocations_.end()) {
            memory = found->second;
            allocations_.erase(found);
            ++calls_; /* the cards stay open until it is freed */
        }
    }
    if (memory == nullptr) {
        ucs_error("gaudi: %p cannot be freed: ucx_gaudi_mem_alloc of this "
                  "process did not give this address, or it is freed",
                  address);
        return UCS_ERR_INVALID_ADDR;
    }
    memory_map::instance().free(*memory);
    leave(UCS_OK);
    return UCS_OK;
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
    const ucs_status_t status = base::guarded([&] {
        const base::held_cards cards = card_table::instance().cards();
        card *home                   = cards.first();
        return (home != nullptr)
                   ? base::transfer_engine::create(*home, {}, engine_p)
                   : base::transfer_engine::create({}, engine_p);
    });
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

ucs_status_t program_memory::copy(void *dst, const void *src, size_t length)
{
    ucs_status_t status = check_range(dst, length);
    if (status == UCS_OK) {
        status = check_range(src, length);
    }
    if ((status != UCS_OK) || (length == 0) || (dst == src)) {
        return status;
    }
    if (overlap(dst, src, length)) {
        ucs_error("gaudi: cannot copy %zu bytes from %p to %p: they overlap",
                  length, src, dst);
        return UCS_ERR_INVALID_PARAM;
    }
    if (!memory_map::is_device(dst) && !memory_map::is_device(src)) {
        util::copy_host_bytes(dst, src, length);
        return UCS_OK;
    }
    return with_engine([&](base::transfer_engine &engine) {
        return engine.copy(dst, src, length);
    });
}

ucs_status_t program_memory::fill(void *address, size_t length,
                                  const void *pattern, size_t pattern_length)
{
    if ((pattern_length == 0) || (pattern_length > 16) ||
        ((pattern_length & (pattern_length - 1)) != 0) ||
        (length % pattern_length != 0)) {
        ucs_error("gaudi: cannot fill %zu bytes with a pattern of %zu bytes: "
                  "its length has to be 1, 2, 4, 8 or 16, and divide theirs",
                  length, pattern_length);
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t status = check_range(address, length);
    if ((status != UCS_OK) || (length == 0)) {
        return status;
    }
    if (memory_map::is_device(pattern)) {
        ucs_error("gaudi: cannot fill with the pattern at %p: it is in device "
                  "memory, and has to be in host memory",
                  pattern);
        return UCS_ERR_INVALID_PARAM;
    }
    char *const target = static_cast<char *>(address);
    if (!memory_map::is_device(address)) {
        repeat(target, length, pattern, pattern_length);
        return UCS_OK;
    }
    size_t done = std::min(length, pattern_block);
    const std::unique_ptr<char[]> block(new char[done]);
    repeat(block.get(), done, pattern, pattern_length);
    return with_engine([&](base::transfer_engine &engine) {
        ucs_status_t filled = engine.check(target, length);
        if (filled == UCS_OK) {
            filled = engine.copy(target, block.get(), done);
        }
        while ((filled == UCS_OK) && (done < length)) {
            const size_t bytes = std::min(done, length - done);
            filled             = engine.copy(target + done, target, bytes);
            done += bytes;
        }
        return filled;
    });
}

program_memory::call::call()
    : cards_(card_table::instance().cards()), home_(program_memory::instance())
{
    std::lock_guard<std::mutex> guard(home_.lock_);
    ++home_.calls_;
}

ucs_status_t program_memory::import(int fd, size_t offset, size_t length,
                                    const char *card_name, void *&address_p)
{
    const call now;
    card *importer = now.cards().find_named(card_name);
    if (importer == nullptr) {
        ucs_error("gaudi: a dma-buf cannot be imported on card %s: this "
                  "process has not opened it",
                  (card_name != nullptr) ? util::to_printable(card_name).c_str()
                                         : "(any)");
        return UCS_ERR_NO_DEVICE;
    }
    const ucs_status_t status =
        base::import_dmabuf(*importer, fd, offset, length, address_p);
    if (status == UCS_OK) {
        std::lock_guard<std::mutex> guard(lock_);
        ++imports_;
    }
    return status;
}

ucs_status_t program_memory::release(void *address)
{
    const call now; /* the last one to hold the cards, with no lock held */
    const ucs_status_t status = base::release_import(address);
    if (status == UCS_OK) {
        std::lock_guard<std::mutex> guard(lock_);
        --imports_;
    }
    return status;
}

} // namespace gaudi
