/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/connection.h"

#include "util/addresses.h"

#include <algorithm>
#include <cerrno>

namespace gaudi::shim {

namespace {

/* Of one entry: the field has 32 bits, and the vendor's driver allows 1 GiB
 * (HBL_IB_MAX_MSG_SIZE of hbl_verbs.c). */
constexpr uint64_t most_bytes = uint64_t{1} << 30;

/* Stripes are whole packets, but for the last one. */
constexpr uint64_t packet_bytes = 4096;

/* How long a port may complete nothing before events are looked for, and then
 * how often. */
constexpr auto doubt = std::chrono::milliseconds(5);

/* The same while a port is left out: its link may come back. */
constexpr auto hope = std::chrono::milliseconds(100);

/* Polls of which one looks at the clock, while other ports are at work. */
constexpr unsigned looks_apart = 256;

uint64_t entries_for(uint64_t bytes)
{
    return (bytes + most_bytes - 1) / most_bytes;
}

} // namespace

connection::connection(port_device &over, const connection_options &options)
    : device_(over), options_(options), writes_(options.depth),
      ended_(options.depth)
{
    for (unsigned i = options.depth; i > 0; --i) {
        free_.push_back(static_cast<uint16_t>(i - 1));
    }
}

std::string connection::open(port_device &over, unsigned peer,
                             const connection_options &options,
                             std::unique_ptr<connection> &connection_p)
{
    const card_ports &place = over.place();
    std::unique_ptr<connection> made(new connection(over, options));
    port_offer &offer = made->offer_;
    offer.kind        = static_cast<uint32_t>(over.kind());
    offer.own         = place.module_id;
    offer.peer        = peer;
    std::string why   = "no port leads to card " + std::to_string(peer) + " (" +
                      place.map.name + ")";
    for (const port_pair &each : place.map.between(place.module_id, peer)) {
        auto on  = std::make_unique<link>();
        on->over = over.find(each.own, why);
        on->own  = each.own;
        on->peer = each.peer;
        if (on->over == nullptr) {
            continue;
        }
        port_offer::end &end = offer.ends[offer.count];
        end.port             = each.own;
        std::string fault    = on->over->create(on->pair, end.address);
        if (fault.empty()) {
            ++offer.count;
            made->links_.push_back(std::move(on));
        } else {
            why = "port " + std::to_string(each.own) + ": " + fault;
        }
    }
    if (made->links_.empty()) {
        return why;
    }
    made->chosen_.reserve(made->links_.size());
    connection_p = std::move(made);
    return "";
}

connection::~connection()
{
    close();
}

std::string connection::connect(const port_offer &peers, bool partly)
{
    if ((peers.version != port_offer::current_version) ||
        (peers.kind != offer_.kind) || (peers.count > peers.ends.size()) ||
        (peers.own != offer_.peer) || (peers.peer != offer_.own)) {
        return "the peer offers what is no end of this connection";
    }
    std::string why   = "the peer offers none of these ports";
    uint32_t position = 0;
    bool all_there    = true;
    for (auto &each : links_) {
        port_offer::end &ours  = offer_.ends[position++];
        const auto *const last = peers.ends.begin() + peers.count;
        const auto *const end =
            std::find_if(peers.ends.begin(), last, [&](const auto &offered) {
                return offered.port == each->peer;
            });
        if ((end != last) && (end->port != port_offer::gone)) {
            const std::string fault =
                each->over->connect(each->pair, end->address);
            if (fault.empty()) {
                connected_ = true;
                continue;
            }
            why = "port " + std::to_string(each->own) + ": " + fault;
            all_there &= partly;
        }
        ours.port = port_offer::gone;
        each->over->destroy(each->pair);
        each.reset();
    }
    std::erase(links_, nullptr);
    connected_ &= all_there;
    seen_ = device_.changes() - 1; /* look anew */
    return connected_ ? "" : why;
}

unsigned connection::usable_ports() const
{
    return static_cast<unsigned>(std::ranges::count_if(
        links_, [&](const auto &each) { return connected_ && each->works(); }));
}

bool connection::has_failed() const
{
    return std::ranges::any_of(links_, [](const auto &each) {
        return each->pair.failed.load(std::memory_order_relaxed);
    });
}

/* --- writes ----------------------------------------------------------------*/

int connection::post(uint64_t remote, uint64_t local, uint64_t size,
                     void *cookie)
{
    if (is_over()) {
        return -ENODEV;
    }
    if (free_.empty()) {
        return -EAGAIN;
    }
    chosen_.clear();
    const size_t count  = links_.size();
    const bool is_short = (size / 2 < options_.stripe_bytes);
    bool all_work       = connected_; /* of those looked at */
    for (size_t i = next_; connected_ && (i < next_ + count); ++i) {
        link &each = *links_[(i < count) ? i : i - count];
        if (!each.works()) {
            all_work = false;
            continue;
        }
        chosen_.push_back(&each);
        if (is_short && (each.room() > 0)) {
            break;
        }
    }
    if (!all_work) {
        const clock::time_point now = clock::now();
        if (now - looked_ >= hope) {
            look_for_events(now);
        }
    }
    if (chosen_.empty()) {
        return -ENOTCONN;
    }
    const uint64_t stripes =
        is_short
            ? 1
            : std::min<uint64_t>(size / options_.stripe_bytes, chosen_.size());
    const uint64_t share =
        (stripes == 1)
            ? size
            : util::round_up((size + stripes - 1) / stripes, packet_bytes);
    const uint64_t entries = entries_for(share);
    if (entries > most_entries) {
        return -EMSGSIZE;
    }
    /* One that goes by one port takes the first that has room. */
    size_t ready = 0;
    for (link *each : chosen_) {
        if (each->room() >= entries) {
            chosen_[ready++] = each;
        }
        if (ready == stripes) {
            break;
        }
    }
    if (ready < stripes) {
        return -EAGAIN;
    }
    next_ = (next_ + 1 < count) ? next_ + 1 : 0;

    const uint16_t id = free_.back();
    free_.pop_back();
    writes_[id] = {cookie, 0, 0};
    ++outstanding_;
    auto on = chosen_.begin();
    for (uint64_t done = 0; done < size; done += share) {
        start(**on++, id, remote + done, local + done,
              std::min(share, size - done));
    }
    if (writes_[id].missing == 0) {
        ended_[(ended_first_ + ended_count_++) % ended_.size()] = id;
    }
    return 0;
}

/* The doorbell of a later entry stands for those before it: one that the card
 * does not take now is rung when writes are polled. */
void connection::start(link &on, uint16_t id, uint64_t remote, uint64_t local,
                       uint64_t size)
{
    if (on.posted() == on.finished) {
        on.since = {}; /* by the next look */
        on.rung  = true;
    }
    for (uint64_t done = 0; done < size; done += most_bytes) {
        const auto bytes =
            static_cast<uint32_t>(std::min(most_bytes, size - done));
        on.entries[on.posted() % queue_places] = id;
        ++writes_[id].missing;
        on.over->write(on.pair, remote + done, local + done, bytes);
    }
    on.rung = on.rung && on.over->ring(on.pair);
}

unsigned connection::poll(dma_completion *ended, unsigned max)
{
    const uint32_t before = ended_count_;
    for (auto &each : links_) {
        link &on = *each;
        if (on.posted() == on.finished) {
            continue;
        }
        if (!on.rung) {
            on.rung = on.over->ring(on.pair);
        }
        on.over->poll();
        finish(on, 0);
        if (is_over()) {
            give_up(on, -ENODEV);
        } else if (on.pair.failed.load(std::memory_order_acquire)) {
            give_up(on, -EIO);
        }
    }
    if ((outstanding_ > ended_count_) &&
        ((ended_count_ == before) || (++polls_ % looks_apart == 0))) {
        look_after();
    }
    unsigned count = 0;
    for (; (count < max) && (ended_count_ > 0); ++count) {
        const uint16_t id = ended_[ended_first_++ % ended_.size()];
        ended[count]      = {writes_[id].cookie, writes_[id].status};
        free_.push_back(id);
        --ended_count_;
        --outstanding_;
    }
    return count;
}

/* Take what has completed. With a status, what is left of the entries ends with
 * it. */
void connection::finish(link &on, int status)
{
    const uint32_t completed =
        on.pair.completed.load(std::memory_order_acquire);
    const uint32_t last = (status == 0) ? completed : on.posted();
    if (last != on.finished) {
        on.since        = {};
        on.has_repeated = false;
    }
    for (; on.finished != last; ++on.finished) {
        const uint16_t id = on.entries[on.finished % queue_places];
        write &of         = writes_[id];
        const bool has_failed =
            (static_cast<int32_t>(on.finished - completed) >= 0);
        if (has_failed) {
            of.status = status;
        }
        if (--of.missing == 0) {
            ended_[(ended_first_ + ended_count_++) % ended_.size()] = id;
        }
    }
}

/* The card may have completed the writes without reporting them. */
void connection::repeat(link &on)
{
    on.has_repeated   = true;
    const uint16_t id = on.entries[(on.posted() - 1) % queue_places];
    on.entries[on.posted() % queue_places] = id;
    ++writes_[id].missing;
    on.over->repeat(on.pair);
    on.rung = on.over->ring(on.pair);
}

/* Its queue pair is destroyed first: what is not known to be written is not
 * written later either. */
void connection::give_up(link &on, int status)
{
    on.pair.failed.store(true);
    if (on.pair.handle != nullptr) {
        on.over->destroy(on.pair);
    }
    finish(on, status);
}

/* See whether all that have something to do get on with it. */
void connection::look_after()
{
    const clock::time_point now = clock::now();
    bool stalled                = false;
    for (auto &each : links_) {
        link &on = *each;
        if (on.posted() == on.finished) {
            continue;
        }
        if (on.since == clock::time_point()) {
            on.since = now;
        }
        stalled |= (now - on.since >= doubt);
        if ((now - on.since >= hope) && !on.has_repeated &&
            on.over->may_repeat(on.pair)) {
            repeat(on);
        }
        if (now - on.since > options_.patience) {
            give_up(on, -ETIMEDOUT);
        }
    }
    if (stalled && (now - looked_ >= doubt)) {
        look_for_events(now);
    }
}

void connection::look_for_events(clock::time_point now)
{
    looked_ = now;
    device_.look_for_events();
}

bool connection::is_over() const
{
    return device_.of().is_lost();
}

void connection::close()
{
    for (auto &each : links_) {
        give_up(*each, -EIO);
    }
}

} // namespace gaudi::shim
