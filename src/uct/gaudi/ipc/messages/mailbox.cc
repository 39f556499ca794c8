/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/messages/mailbox.h"

#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "util/file_mapping.h"

#include <algorithm>
#include <bit>

#include <sys/socket.h>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

namespace {

/* How often senders are looked after, while there is no event. */
constexpr double look_interval_s = 0.1;

/* As many rings as a file of this process may have. */
mailbox_layout fitting_layout(size_t ring_size, unsigned ring_count)
{
    const mailbox_layout wanted{ring_size, ring_count};
    const size_t longest = util::longest_file();
    if (longest >= wanted.length()) {
        return wanted;
    }
    const size_t rings = (longest - std::min(longest, wanted.header_length())) /
                         wanted.ring_length();
    return {ring_size, static_cast<unsigned>(rings)};
}

} // namespace

mailbox::mailbox(const mailbox_layout &layout)
    : address_{own_process(), {}}, layout_(layout),
      owners_(address_.process.word_for(address_.process.pid_namespace))
{}

ucs_status_t mailbox::create(const mailbox_options &options,
                             std::unique_ptr<mailbox> &mailbox_p)
{
    if ((options.fifo_size > largest_fifo) || (options.max_senders == 0) ||
        (options.max_senders > most_senders)) {
        ucs_error("gaudi_ipc: %u senders with %zu bytes each: not more than %u "
                  "and %zu, and at least one sender",
                  options.max_senders, options.fifo_size, most_senders,
                  largest_fifo);
        return UCS_ERR_INVALID_PARAM;
    }
    const mailbox_layout layout = fitting_layout(
        std::bit_ceil(std::max(options.fifo_size, ring_min_size)),
        options.max_senders);
    if (layout.ring_count == 0) {
        ucs_error("gaudi_ipc: no mailbox fits in the longest file that this "
                  "process may make (RLIMIT_FSIZE)");
        return UCS_ERR_NO_MEMORY;
    }
    std::unique_ptr<mailbox> fresh(new mailbox(layout));
    const ucs_status_t status = fresh->initialize();
    if (status == UCS_OK) {
        mailbox_p = std::move(fresh);
    }
    return status;
}

ucs_status_t mailbox::initialize()
{
    const ucs_status_t status = make_file();
    if (status != UCS_OK) {
        return status;
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   ends) != 0) {
        ucs_error("gaudi_ipc: cannot make a pair of sockets: %m");
        return UCS_ERR_IO_ERROR;
    }
    signal_.reset(ends[0]);
    senders_end_.reset(ends[1]);

    file_offer offer;
    offer.fds = {file_.get(), senders_end_.get()};
    if (!owners_.open(signal_.get()) ||
        (file_service::add(std::move(offer), address_.file) != UCS_OK)) {
        ucs_error("gaudi_ipc: cannot wait for messages: %m");
        return UCS_ERR_IO_ERROR;
    }

    header().magic      = mailbox_header::right_magic;
    header().version    = wire_version;
    header().nonce      = address_.process.nonce;
    header().ring_size  = layout_.ring_size;
    header().ring_count = layout_.ring_count;
    looked_             = ucs_get_time();
    return UCS_OK;
}

mailbox::~mailbox()
{
    if (header_.start() == nullptr) {
        return;
    }
    file_service::remove(address_.file);
    for (const auto &ring : rings_) {
        if (ring != nullptr) {
            ring->reader.close();
        }
    }
    header().closed.store(1);
}

/* After sleep; or another thread sleeps on, which is for senders to know. */
void mailbox::wake()
{
    armed_ = false;
    find_dead();
}

/* From now on senders see that their rings are polled, and wake nobody. Who
 * sleeps meanwhile has to look for itself and arm again. */
void mailbox::collect_beside_sleepers()
{
    collect();
    if ((header().asleep.load() != 0) && signal_mailbox(senders_end_.get())) {
        header().asleep.store(0);
    }
}

/* Take notice of the rings that senders marked. */
void mailbox::collect()
{
    const auto for_each_bit = [](std::atomic<uint64_t> &word, auto &&action) {
        for (uint64_t bits = word.exchange(0); bits != 0; bits &= bits - 1) {
            action(static_cast<unsigned>(std::countr_zero(bits)));
        }
    };
    for_each_bit(header().marked_groups, [&](unsigned group) {
        for_each_bit(header().marked_words[group], [&](unsigned bit) {
            const unsigned word = group * mailbox_header::word_bits + bit;
            for_each_bit(header().marked[word], [&](unsigned ring) {
                const unsigned index = word * mailbox_header::word_bits + ring;
                if ((index < layout_.ring_count) && (adopt(index) != UCS_OK)) {
                    header().mark(index); /* to try again */
                }
            });
        });
    });
}

void mailbox::look_after_senders()
{
    const ucs_time_t now = ucs_get_time();
    if (now - looked_ < ucs_time_from_sec(look_interval_s)) {
        return;
    }
    looked_ = now;
    find_dead();
    adopt_all();
}

/* What the dead have sent is delivered, then their rings are free. */
void mailbox::find_dead()
{
    if (!owners_.find_dead()) {
        return;
    }
    for (const auto &ring : rings_) {
        if ((ring != nullptr) && owners_.is_dead(ring->owner)) {
            ring->finishing = true;
            start_polling(*ring);
        }
    }
}

/* Find the rings of senders that died before they could mark them. */
void mailbox::adopt_all()
{
    const unsigned used = /* senders write it */
        std::min(header().used.load(), layout_.ring_count);
    for (unsigned index = 0; index < used; ++index) {
        const uint64_t owner =
            header().owners[index].load(std::memory_order_relaxed);
        const owned_ring *known =
            (index < rings_.size()) ? rings_[index].get() : nullptr;
        if (owner != ((known == nullptr) ? 0 : known->owner)) {
            (void)adopt(index); /* else the next time */
        }
    }
}

/* Read a ring that has an owner; it may have been read already. */
ucs_status_t mailbox::adopt(unsigned index)
{
    const uint64_t owner =
        header().owners[index].load(std::memory_order_acquire);
    if (owner == 0) {
        return UCS_OK;
    }
    return base::guarded([&] {
        const ucs_status_t status = read_ring(index);
        if (status != UCS_OK) {
            return status;
        }
        owned_ring &ring    = *rings_[index];
        const uint64_t name = owner & ~owner_left;
        if ((owner != nobody) && (ring.owner != name)) {
            owners_.remove(ring.owner);
            owners_.add(name);
            ring.owner = name;
        }
        ring.finishing =
            (owner == nobody) || has_left(owner) || owners_.is_dead(ring.owner);
        start_polling(ring);
        return UCS_OK;
    });
}

/* What reads a ring. */
ucs_status_t mailbox::read_ring(unsigned index)
{
    if ((index < rings_.size()) && (rings_[index] != nullptr)) {
        return UCS_OK;
    }
    const ucs_status_t status = map_ring(index);
    if (status != UCS_OK) {
        return status;
    }
    if (index >= rings_.size()) {
        rings_.resize(index + 1);
    }
    polled_.reserve(rings_.capacity()); /* polls allocate nothing */
    auto fresh   = std::make_unique<owned_ring>();
    fresh->index = index;
    fresh->reader =
        ring_reader(reinterpret_cast<ring_control *>(ring(index)),
                    ring(index) + layout_.data_offset(), layout_.ring_size);
    rings_[index] = std::move(fresh);
    ++adopted_;
    return UCS_OK;
}

void mailbox::start_polling(owned_ring &ring)
{
    if (ring.broken) {
        if (ring.finishing) {
            (void)try_free(ring);
        }
    } else if (!ring.polled) {
        polled_.push_back(&ring);
        ring.polled      = true;
        ring.empty_polls = 0;
        ring.reader.control()->state.store(ring_polled,
                                           std::memory_order_relaxed);
    }
}

void mailbox::fail(owned_ring &ring)
{
    ring.broken = true;
    untidy_     = true;
    ring.reader.close();
    ucs_error("gaudi_ipc: process %u has written an invalid message: its "
              "messages are ignored from now on",
              owner_pid(ring.owner));
}

/* Tell the sender that a ring is not polled, unless something is in it. */
bool mailbox::try_idle(owned_ring &ring)
{
    ring_reader::message message;
    std::atomic<uint32_t> &state = ring.reader.control()->state;
    state.store(ring_idle, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (ring.reader.peek(message) == ring_reader::result::none) {
        return true;
    }
    state.store(ring_polled, std::memory_order_relaxed);
    return false;
}

/* Poll no more the rings that are done, broken, or long empty. */
void mailbox::tidy()
{
    ring_reader::message message;
    untidy_ = false;
    for (size_t i = 0; i < polled_.size();) {
        owned_ring &ring = *polled_[i];
        bool keep        = !ring.broken;
        bool freed       = false;
        if (ring.finishing) {
            freed = (ring.broken || (ring.reader.peek(message) ==
                                     ring_reader::result::none)) &&
                    try_free(ring);
        } else if (keep && (ring.empty_polls > patience)) {
            ring.empty_polls = 0;
            keep             = !try_idle(ring);
        }
        if (keep && !freed) {
            ++i;
            continue;
        }
        if (!freed) {
            ring.polled = false;
        }
        polled_.erase(polled_.begin() + static_cast<ptrdiff_t>(i));
    }
    next_ = 0;
}

/* Make a ring as new, for the next sender, unless there is something in it or
 * another sender has taken it over. @return Whether the ring has gone. */
bool mailbox::try_free(owned_ring &ring)
{
    const unsigned index        = ring.index;
    std::atomic<uint64_t> &word = header().owners[index];
    uint64_t owner              = word.load(std::memory_order_acquire);
    while (owner != nobody) {
        if ((owner != 0) && !has_left(owner) && !owners_.is_dead(owner)) {
            ring.finishing = false;
            header().mark(index); /* for the new owner's sake */
            return false;
        }
        if (word.compare_exchange_strong(owner, nobody)) {
            break;
        }
    }
    /* What came until then. */
    ring_reader::message message;
    if (!ring.broken &&
        (ring.reader.peek(message) == ring_reader::result::message)) {
        return false;
    }
    clear_ring(index);
    owners_.remove(ring.owner);
    rings_[index].reset();
    --adopted_;
    word.store(0, std::memory_order_release);
    return true;
}

bool mailbox::arm()
{
    if (polling_) {
        return false;
    }
    if (armed_) {
        wake();
    }
    /* Bytes that come from now on may be for the sleep to come. */
    char bytes[256];
    for (unsigned i = 0;
         (i < most_senders) && (recv(signal_.get(), bytes, sizeof(bytes),
                                     MSG_DONTWAIT) == sizeof(bytes));
         ++i) {}
    find_dead();
    collect();
    tidy();

    ring_reader::message message;
    bool empty = true;
    for (owned_ring *ring : polled_) {
        ring->reader.control()->state.store(ring_idle,
                                            std::memory_order_relaxed);
    }
    header().asleep.store(++sleeps_, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (owned_ring *ring : polled_) {
        empty = empty && !ring->finishing &&
                (ring->reader.peek(message) == ring_reader::result::none);
    }
    empty = empty && (header().marked_groups.load() == 0);

    if (!empty) {
        header().asleep.store(0, std::memory_order_relaxed);
        for (owned_ring *ring : polled_) {
            ring->reader.control()->state.store(ring_polled,
                                                std::memory_order_relaxed);
        }
        return false;
    }
    for (owned_ring *ring : polled_) {
        ring->polled = false;
    }
    polled_.clear();
    next_  = 0;
    armed_ = true;
    return true;
}

} // namespace gaudi::ipc
