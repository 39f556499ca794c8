/* SPDX-License-Identifier: BSD-3-Clause */
/* What UCT says of put, get, fences, flushes and active messages: exactly the
 * bytes that were asked for, nobody else's, and each completion once. Between
 * all kinds of memory, by all calls, within a process and between two. These
 * run on every kind of card and above the double of the kernel. */
#include "common/process_state.h"
#include "gtest/uct/peers.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gaudi::test {

namespace {

enum class place { host, registered, card, second_card };
enum class method { shorts, bcopy, zcopy };

/* Which transport copies, and how between two processes. */
enum class way { copy, ipc_host, ipc_ports };

struct one_case {
    way by;
    place here;
    place there; /* of a peer's: host or card */
    method how;
};

const char *name_of(way what)
{
    const char *names[] = {"copy", "ipc_host", "ipc_ports"};
    return names[static_cast<int>(what)];
}

std::string name_of(const one_case &what)
{
    const char *places[]  = {"host", "registered", "card", "second"};
    const char *methods[] = {"short", "bcopy", "zcopy"};
    return std::string(name_of(what.by)) + "_" +
           methods[static_cast<int>(what.how)] + "_" +
           places[static_cast<int>(what.here)] + "_and_" +
           places[static_cast<int>(what.there)];
}

[[maybe_unused]] void PrintTo(const one_case &what, std::ostream *out)
{
    *out << name_of(what);
}

std::vector<one_case> all_cases()
{
    std::vector<one_case> all;
    for (const method how : {method::shorts, method::bcopy, method::zcopy}) {
        for (const place here : {place::host, place::registered, place::card,
                                 place::second_card}) {
            for (const place there :
                 {place::host, place::card, place::second_card}) {
                all.push_back({way::copy, here, there, how});
            }
            if (here != place::second_card) {
                all.push_back({way::ipc_host, here, place::host, how});
                all.push_back({way::ipc_host, here, place::card, how});
                all.push_back({way::ipc_ports, here, place::card, how});
            }
        }
    }
    return all;
}

bool is_card(place what)
{
    return (what == place::card) || (what == place::second_card);
}

/* The test process, and what a peer does between two lines. */
child_options process_for(way by, const char *habit = "rests")
{
    switch (by) {
    case way::copy:
        return {{{"UCX_GAUDI_DEVICES", "all"}, {"HLTHUNK_EMU_DEVICES", "2"}}};
    case way::ipc_host:
        return {{{"UCX_GAUDI_IPC_ROUTES", "host"}, {peer_habit, habit}}};
    case way::ipc_ports:
        break;
    }
    /* Beside a framework ports do not reach host memory here. */
    return {{{"UCX_GAUDI_IPC_ROUTES",
              runs_beside_framework() ? "ports,host" : "ports"},
             {"HLTHUNK_EMU_PORTS", "y"},
             {peer_habit, habit}}};
}

constexpr char case_variable[] = "GAUDI_TEST_CASE";

/* A peer may do anything between two lines. */
child_options process_for(const one_case &what)
{
    const char *habits[] = {"sleeps", "polls", "rests"};
    child_options options =
        process_for(what.by, habits[static_cast<int>(what.how)]);
    options.environment.emplace_back(case_variable, name_of(what));
    return options;
}

constexpr size_t total = ipc_peer_bytes; /* of each buffer */
constexpr size_t guard = 64; /* bytes that are looked at beside each copy */

/* Memory at one end of copies, and what it has to hold. */
class buffer {
public:
    virtual ~buffer() = default;

    [[nodiscard]] virtual uint64_t address() const = 0;
    [[nodiscard]] void *at(size_t offset) const
    {
        return reinterpret_cast<void *>(address() + offset);
    }
    /* Whether it holds what it has to, in a range and beside it. */
    bool is_right(size_t offset, size_t size)
    {
        const size_t first = offset - std::min(offset, guard);
        const size_t end   = std::min(total, offset + size + guard);
        return has(first, end - first);
    }

    std::vector<char> wanted = std::vector<char>(total);

private:
    [[nodiscard]] virtual bool has(size_t first, size_t size) = 0;
};

class own_buffer final : public buffer {
public:
    own_buffer(transport &copy, uct_md_h copy_md, uct_md_h md, place what)
        : copy_(copy)
    {
        if (is_card(what)) {
            /* The middle is where two pages of the card meet. */
            const size_t page = std::max<size_t>(device_page(), total / 2);
            card_.emplace(copy_md, 2 * page,
                          (what == place::card) ? nullptr : window_of_card(1));
            address_ = card_->remote(page - total / 2);
            return;
        }
        host_.emplace(total);
        address_ = reinterpret_cast<uintptr_t>(host_->data());
        if (what == place::registered) {
            registered_.emplace(md, host_->data(), total);
        }
    }

    [[nodiscard]] uint64_t address() const override { return address_; }

    /* Let a range, and what is beside it, hold something new. */
    void renew(size_t offset, size_t size)
    {
        const size_t first = offset - std::min(offset, guard);
        const size_t end   = std::min(total, offset + size + guard);
        fill_pattern(&wanted[first], end - first, ++seed_);
        if (host_) {
            std::memcpy(at(first), &wanted[first], end - first);
        } else {
            EXPECT_EQ(UCS_OK, copy_.put_short(&wanted[first], end - first,
                                              address_ + first));
        }
    }

private:
    bool has(size_t first, size_t size) override
    {
        if (host_) {
            return std::memcmp(at(first), &wanted[first], size) == 0;
        }
        std::vector<char> seen(size);
        copy_.read_device(seen.data(), address_ + first, size);
        return std::memcmp(seen.data(), &wanted[first], size) == 0;
    }

    static inline uint64_t seed_ = 1;
    transport &copy_;
    std::optional<device_buffer> card_;
    std::optional<guarded_buffer> host_;
    std::optional<registration> registered_;
    uint64_t address_ = 0;
};

class peer_buffer final : public buffer {
public:
    peer_buffer(ipc_peer &peer, bool of_card) : peer_(peer), of_card_(of_card)
    {
        peer.fill(1);
        fill_pattern(wanted.data(), total, 1);
    }

    [[nodiscard]] uint64_t address() const override
    {
        return of_card_ ? peer_.device.address : peer_.host.address;
    }

private:
    bool has(size_t first, size_t size) override
    {
        return peer_.sum(of_card_, first, size) == sum_of(&wanted[first], size);
    }

    ipc_peer &peer_;
    const bool of_card_;
};

/* What copies, from here to memory of this process or of another one. */
class copies {
public:
    explicit copies(way by, bool peer_memory_of_card = true)
    {
        if (by == way::copy) {
            own_.emplace();
            return;
        }
        beside_.emplace();
        key_.emplace(peer_memory_of_card ? beside_->peer.device.key
                                         : beside_->peer.host.key);
    }
    ~copies() { EXPECT_TRUE(all_ended_once()); }
    copies(const copies &)            = delete;
    copies &operator=(const copies &) = delete;

    [[nodiscard]] std::unique_ptr<own_buffer> make_here(place what)
    {
        return std::make_unique<own_buffer>(copy(), copy_md(), md(), what);
    }
    [[nodiscard]] std::unique_ptr<buffer> make_there(place what)
    {
        if (!beside_) {
            return make_here(what);
        }
        return std::make_unique<peer_buffer>(beside_->peer, is_card(what));
    }

    [[nodiscard]] transport &tl() { return beside_ ? *beside_->tl : own_->tl; }
    [[nodiscard]] endpoint to() const
    {
        return beside_ ? beside_->to(*key_) : endpoint{own_->tl.ep, own_->rkey};
    }

    void flush()
    {
        ucs_status_t status;
        do {
            tl().progress();
            status = uct_ep_flush(to().ep, 0, nullptr);
        } while ((status == UCS_INPROGRESS) || (status == UCS_ERR_NO_RESOURCE));
        EXPECT_EQ(UCS_OK, status);
    }

    /* A completion that has to be called once, by the end. */
    counted_completion &completion() { return all_.emplace_back(); }

    [[nodiscard]] ::testing::AssertionResult all_ended_once()
    {
        tl().progress_much();
        for (const counted_completion &each : all_) {
            if (const auto ended = ended_once(each); !ended) {
                return ended;
            }
        }
        return ::testing::AssertionSuccess();
    }

    /* One operation to its end. */
    void put(method how, void *here, size_t size, uint64_t remote);
    void get(method how, void *here, size_t size, uint64_t remote);

    /* Bytes that all cards moved. */
    uint64_t moved()
    {
        return beside_ ? moved_bytes() + beside_->peer.moved_bytes()
                       : moved_by(0) + moved_by(1);
    }

private:
    struct own_process {
        checked_log log;
        opened_domain md;
        transport tl{md};
        uct_rkey_t rkey = UCT_INVALID_RKEY;
    };

    static uint64_t moved_by(unsigned card)
    {
        const hlthunk_emu_counters of = engine_hooks::counters_of(card);
        return of.host_to_device_bytes + of.device_to_host_bytes +
               of.device_to_device_bytes + of.host_to_host_bytes;
    }

    transport &copy() { return beside_ ? beside_->copy : own_->tl; }
    uct_md_h copy_md() { return beside_ ? beside_->copy_md : own_->md; }
    uct_md_h md() { return beside_ ? beside_->ipc_md : own_->md; }

    std::optional<own_process> own_;
    std::optional<with_a_peer> beside_;
    std::optional<unpacked_key> key_;
    std::deque<counted_completion> all_;
};

/* UCP packs memory of a card by a transport that gets it. */
struct fetched {
    static size_t pack(void *to, void *self)
    {
        const auto &of = *static_cast<fetched *>(self);
        EXPECT_EQ(UCS_OK, of.by.get_short(to, of.size, of.from));
        return of.size;
    }

    const endpoint &by;
    uint64_t from;
    size_t size;
};

void copies::put(method how, void *here, size_t size, uint64_t remote)
{
    switch (how) {
    case method::shorts:
        EXPECT_EQ(UCS_OK, to().put_short(here, size, remote));
        flush(); /* the peer may be busy */
        break;
    case method::bcopy: {
        fetched bytes{copy(), reinterpret_cast<uintptr_t>(here), size};
        ssize_t packed = UCS_ERR_NO_RESOURCE; /* while ports connect */
        (void)eventually([&] {
            packed = uct_ep_put_bcopy(to().ep, fetched::pack, &bytes, remote,
                                      to().rkey);
            return packed != UCS_ERR_NO_RESOURCE;
        });
        EXPECT_EQ(static_cast<ssize_t>(size), packed);
        flush();
        break;
    }
    case method::zcopy:
        counted_completion &done = completion();
        ASSERT_EQ(UCS_INPROGRESS, to().put_zcopy(here, size, remote, &done));
        EXPECT_EQ(0u, done.calls) << "completions belong to progress";
        flush();
        break;
    }
}

void copies::get(method how, void *here, size_t size, uint64_t remote)
{
    if (how == method::shorts) {
        EXPECT_EQ(UCS_OK, to().get_short(here, size, remote));
        return;
    }
    counted_completion &done = completion();
    const ucs_status_t status =
        (how == method::zcopy)
            ? to().get_zcopy(here, size, remote, &done)
            : uct_ep_get_bcopy(to().ep, unpack_by_memcpy(), here, size, remote,
                               to().rkey, &done);
    EXPECT_EQ(0u, done.calls) << "completions belong to progress";
    if ((how == method::bcopy) && (status == UCS_OK)) { /* of host memory */
        all_.pop_back();
        return;
    }
    ASSERT_EQ(UCS_INPROGRESS, status);
    flush();
}

/* Around all that copies are cut at: words, pages, chunks of staging memory,
 * pieces of a long copy. */
constexpr size_t sizes[] = {
    0,    1,     8,     127,   4095,          4096,
    4097, 65535, 65536, 65537, (1 << 20) + 1, (3 << 20) + 1};

struct position {
    size_t here;
    size_t there;
};

std::vector<position> positions_for(size_t size)
{
    std::vector<position> all{{guard, guard},
                              {guard + 1, guard + 4094},
                              {total - size, total - size}};
    if (size < total / 2) {
        all.push_back({total / 2 - 1, total / 2 - 2});
    }
    return all;
}

class conformance : public ::testing::TestWithParam<one_case> {};

/* The case that a child has been given. */
one_case given_case()
{
    for (const one_case &each : all_cases()) {
        if (name_of(each) == std::getenv(case_variable)) {
            return each;
        }
    }
    std::abort();
}

} // namespace

TEST_P_IN_CHILD(conformance, of_puts_and_gets, process_for(GetParam()))
{
    const one_case what = given_case();
    copies by(what.by, is_card(what.there));
    const auto here  = by.make_here(what.here);
    const auto there = by.make_there(what.there);
    /* Each card has to move the bytes to or from its memory once; two of them
     * meet in host memory. */
    const bool is_within = (what.by == way::copy) && is_card(what.here) &&
                           is_card(what.there) &&
                           ((what.here == what.there) || has_one_card());
    const uint64_t shares =
        is_within ? 1 : is_card(what.here) + is_card(what.there);
    const bool is_counted =
        (what.by != way::ipc_ports) && (what.how != method::bcopy);
    const auto operate = [&](auto operation, size_t size) {
        const uint64_t before = is_counted ? by.moved() : 0;
        operation();
        if (!is_counted) {
            return;
        }
        const uint64_t moved = by.moved() - before;
        if ((what.by == way::copy) || (what.how == method::zcopy)) {
            EXPECT_EQ(shares * size, moved);
        } else { /* begun anew where the peer was late */
            EXPECT_LE(shares * size, moved);
        }
    };
    for (const size_t size : sizes) {
        if ((what.how == method::bcopy) &&
            (size > by.tl().attr.cap.put.max_bcopy)) {
            continue;
        }
        for (const position &at : positions_for(size)) {
            SCOPED_TRACE(::testing::Message() << size << " bytes at " << at.here
                                              << " and " << at.there);
            char *const local     = static_cast<char *>(here->at(at.here));
            const uint64_t remote = there->address() + at.there;
            here->renew(at.here, size);
            operate([&] { by.put(what.how, local, size, remote); }, size);
            std::copy_n(&here->wanted[0] + at.here, size,
                        &there->wanted[0] + at.there);
            EXPECT_TRUE(there->is_right(at.there, size)) << "put";
            EXPECT_TRUE(here->is_right(at.here, size)) << "put: the source";

            here->renew(at.here, size);
            operate([&] { by.get(what.how, local, size, remote); }, size);
            std::copy_n(&there->wanted[0] + at.there, size,
                        &here->wanted[0] + at.here);
            EXPECT_TRUE(here->is_right(at.here, size)) << "get";
            EXPECT_TRUE(there->is_right(at.there, size)) << "get: the source";
            if (::testing::Test::HasFailure()) {
                return;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(all, conformance, ::testing::ValuesIn(all_cases()),
                         [](const auto &test) { return name_of(test.param); });

/* --- many at a time ------------------------------------------------------- */

namespace {

class conformance_of_order : public ::testing::TestWithParam<way> {
protected:
    static child_options process()
    {
        child_options options = process_for(GetParam());
        options.environment.emplace_back(case_variable, name_of(GetParam()));
        return options;
    }
};

way given_way()
{
    const std::string name = std::getenv(case_variable);
    return (name == name_of(way::copy))       ? way::copy
           : (name == name_of(way::ipc_host)) ? way::ipc_host
                                              : way::ipc_ports;
}

/* Memory here, and of a card there. */
struct two_ends : copies {
    explicit two_ends(place what)
        : copies(given_way()), here(make_here(what)), back(make_here(what))
    {}

    const std::unique_ptr<own_buffer> here;
    const std::unique_ptr<own_buffer> back;
    const std::unique_ptr<buffer> there = make_there(place::card);
    const uint64_t remote               = there->address();
};

} // namespace

/* More than a card takes at a time. */
TEST_P_IN_CHILD(conformance_of_order, each_of_many_ends_once, process())
{
    constexpr size_t count = 400;
    constexpr size_t size  = total / count;
    two_ends by(place::card);
    by.here->renew(0, total);
    for (size_t i = 0; i < count; ++i) {
        by.to().start_put(by.here->at(i * size), size, by.remote + i * size,
                          &by.completion());
    }
    by.flush();
    EXPECT_TRUE(by.all_ended_once());
    std::copy_n(by.here->wanted.begin(), count * size,
                by.there->wanted.begin());
    EXPECT_TRUE(by.there->is_right(0, count * size));
    for (size_t i = 0; i < count; ++i) {
        by.to().start_get(by.back->at(i * size), size, by.remote + i * size,
                          &by.completion());
    }
    by.tl().flush();
    std::copy_n(by.here->wanted.begin(), count * size, by.back->wanted.begin());
    EXPECT_TRUE(by.back->is_right(0, count * size));
}

/* Else a get, by another engine, would overtake the put before it. */
TEST_P_IN_CHILD(conformance_of_order, a_fence_is_not_overtaken, process())
{
    for (const place what : {place::host, place::registered, place::card}) {
        SCOPED_TRACE(is_card(what));
        two_ends by(what);
        uct_ep_h ep = by.to().ep;
        for (const unsigned round : {0u, 1u, 2u}) {
            SCOPED_TRACE(round);
            by.here->renew(0, total);
            by.to().start_put(by.here->at(0), total, by.remote,
                              &by.completion());
            ASSERT_EQ(UCS_OK, (round == 0) ? uct_iface_fence(by.tl().iface, 0)
                                           : uct_ep_fence(ep, 0));
            if (round == 2) { /* UCP cannot try these again: they wait */
                char last = 0;
                EXPECT_EQ(UCS_OK,
                          by.to().get_short(&last, 1, by.remote + total - 1));
                EXPECT_EQ(by.here->wanted.back(), last);
            }
            /* Nothing is started before the put has landed. */
            counted_completion &get = by.completion();
            const uct_iov_t iov     = {by.back->at(0), total, nullptr, 0, 1};
            EXPECT_TRUE(by.tl().progress_until([&] {
                return uct_ep_get_zcopy(ep, &iov, 1, by.remote, by.to().rkey,
                                        &get) == UCS_INPROGRESS;
            }));
            by.flush();
            by.back->wanted = by.here->wanted;
            EXPECT_TRUE(by.back->is_right(0, total));
        }
    }
}

/* Nothing else keeps what other transports start behind it. */
TEST_P_IN_CHILD(conformance_of_order, a_fence_of_the_interface_waits, process())
{
    two_ends by(place::registered);
    by.here->renew(0, total);
    counted_completion &put = by.completion();
    by.to().start_put(by.here->at(0), total, by.remote, &put);
    ASSERT_EQ(UCS_OK, uct_iface_fence(by.tl().iface, 0));
    EXPECT_EQ(0u, put.calls);
    by.there->wanted = by.here->wanted;
    EXPECT_TRUE(by.there->is_right(0, total));
    by.flush();
}

/* What has ended keeps its chunk until progress unpacks it, which a fence does
 * not do. */
TEST_P_IN_CHILD(conformance_of_order, a_fence_needs_no_chunk_of_what_has_ended,
                process())
{
    constexpr size_t size = 4096;
    two_ends by(place::host);
    const endpoint to = by.to();
    by.here->renew(0, total);
    by.to().start_put(by.here->at(0), total, by.remote, &by.completion());
    by.flush();
    for (const bool of_interface : {true, false}) {
        std::vector<char> bytes(size);
        counted_completion *next;
        ucs_status_t status;
        do {
            next   = &by.completion();
            status = uct_ep_get_bcopy(to.ep, unpack_by_memcpy(), bytes.data(),
                                      size, by.remote, to.rkey, next);
        } while (status == UCS_INPROGRESS);
        ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
        by.back->renew(0, total);
        to.start_get(by.back->at(0), total, by.remote, next);
        if (of_interface) {
            ASSERT_EQ(UCS_OK, uct_iface_fence(by.tl().iface, 0));
        } else {
            ASSERT_EQ(UCS_OK, uct_ep_fence(to.ep, 0));
            char last = 0;
            EXPECT_EQ(UCS_OK, to.get_short(&last, 1, by.remote + total - 1));
            EXPECT_EQ(by.here->wanted.back(), last);
        }
        by.back->wanted = by.here->wanted;
        EXPECT_TRUE(by.back->is_right(0, total));
        by.flush();
    }
}

/* They were there before it. */
TEST_P_IN_CHILD(conformance_of_order,
                a_fence_of_the_interface_waits_for_requests, process())
{
    constexpr size_t size = 4096;
    two_ends by(place::card);
    by.here->renew(0, total);
    const endpoint to = by.to();
    size_t done       = 0;
    const auto put    = [&] {
        const ssize_t result = uct_ep_put_bcopy(
               to.ep,
               [](void *bytes, void *of) {
                std::memcpy(bytes, of, size);
                return size;
            },
               &by.here->wanted[done], by.remote + done, to.rkey);
        done += (result > 0) ? size : 0;
        return (result > 0) ? UCS_OK : static_cast<ucs_status_t>(result);
    };
    ucs_status_t status = UCS_OK;
    while ((status == UCS_OK) && (done + 2 * size <= total)) {
        status = put();
    }
    ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
    pending_request first(put);
    pending_request second(put);
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(to.ep, &first, 0));
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(to.ep, &second, 0));
    ASSERT_EQ(UCS_OK, uct_iface_fence(by.tl().iface, 0));
    EXPECT_TRUE(first.done && second.done);
    std::copy_n(by.here->wanted.begin(), done, by.there->wanted.begin());
    EXPECT_TRUE(by.there->is_right(0, done));
    by.flush();
}

TEST_P_IN_CHILD(conformance_of_order, a_flush_ends_behind_what_was_started,
                process())
{
    constexpr size_t size = 100001;
    two_ends by(place::card);
    by.here->renew(0, total);
    for (const bool of_endpoint : {true, false}) {
        SCOPED_TRACE(of_endpoint);
        std::vector<counted_completion *> before;
        counted_completion flushed;
        for (unsigned i = 0; i < 100; ++i) {
            before.push_back(&by.completion());
            by.to().start_put(by.here->at(i), size, by.remote, before.back());
        }
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        ASSERT_TRUE(eventually([&] {
            status = of_endpoint ? uct_ep_flush(by.to().ep, 0, &flushed)
                                 : uct_iface_flush(by.tl().iface, 0, nullptr);
            by.tl().progress();
            return of_endpoint ? (status != UCS_ERR_NO_RESOURCE)
                               : (status == UCS_OK);
        }));
        EXPECT_TRUE(by.tl().progress_until(
            [&] { return !of_endpoint || (flushed.calls > 0); }));
        for (const counted_completion *each : before) {
            EXPECT_TRUE(ended_once(*each));
        }
        EXPECT_EQ(of_endpoint ? 1u : 0u, flushed.calls);
        EXPECT_EQ(UCS_OK, uct_ep_flush(by.to().ep, 0, nullptr));
    }
}

INSTANTIATE_TEST_SUITE_P(of, conformance_of_order,
                         ::testing::Values(way::copy, way::ipc_host,
                                           way::ipc_ports),
                         [](const auto &test) { return name_of(test.param); });

/* --- active messages ------------------------------------------------------ */

namespace {

using conformance_of_messages = ::testing::TestWithParam<const char *>;

child_options to_peer_that(const char *habit)
{
    return {{{peer_habit, habit}, {case_variable, habit}}};
}

/* The bytes of a message: those of short ones begin with a number. */
std::vector<char> message(size_t number, size_t longest)
{
    std::vector<char> bytes(sizeof(uint64_t) +
                            (number * 7919) % (longest - sizeof(uint64_t) + 1));
    fill_pattern(bytes.data(), bytes.size(), number);
    return bytes;
}

/* By each call in turn. */
ucs_status_t send(uct_ep_h ep, size_t number, std::vector<char> bytes)
{
    ssize_t sent = 0;
    if (number % 3 == 0) {
        packed_bytes packed{bytes.data(), bytes.size()};
        sent = uct_ep_am_bcopy(ep, ipc_echo_id, packed_bytes::pack, &packed, 0);
        return (sent < 0) ? static_cast<ucs_status_t>(sent) : UCS_OK;
    }
    if (number % 3 == 1) {
        const uct_iov_t iov{bytes.data(), bytes.size(), nullptr, 0, 1};
        return uct_ep_am_short_iov(ep, ipc_echo_id, &iov, 1);
    }
    uint64_t header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    return uct_ep_am_short(
        ep, ipc_echo_id, header, bytes.data() + sizeof(header),
        static_cast<unsigned>(bytes.size() - sizeof(header)));
}

} // namespace

/* Also when their queue is full. */
TEST_P_IN_CHILD(conformance_of_messages, keep_their_order_and_contents,
                to_peer_that(GetParam()))
{
    constexpr size_t count = 3000;
    std::vector<std::vector<char>> received;
    with_a_peer p;
    const bool of_own = std::getenv(case_variable) == std::string("itself");
    uct_ep_h to       = of_own ? p.tl->ep : p.ep;
    ASSERT_EQ(UCS_OK, uct_iface_set_am_handler(
                          p.tl->iface, ipc_echo_id,
                          [](void *all, void *data, size_t length, unsigned) {
                              const char *from = static_cast<char *>(data);
                              static_cast<std::vector<std::vector<char>> *>(all)
                                  ->emplace_back(from, from + length);
                              return UCS_OK;
                          },
                          &received, 0));
    p.peer.connect(p.tl->address());
    const size_t longest =
        std::min(p.tl->attr.cap.am.max_short, p.tl->attr.cap.am.max_bcopy);
    size_t refused = 0;
    for (size_t i = 0; i < count;) {
        const ucs_status_t status = send(to, i, message(i, longest));
        if (status == UCS_OK) {
            ++i;
            continue;
        }
        ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
        ++refused;
        p.tl->progress();
    }
    EXPECT_NE(0u, refused) << "the queue was never full";
    ASSERT_TRUE(p.tl->progress_until([&] { return received.size() >= count; }));
    p.tl->progress_much();
    ASSERT_EQ(count, received.size());
    for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(message(i, longest), received[i]) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(to_a_process_that, conformance_of_messages,
                         ::testing::Values("polls", "sleeps", "itself"),
                         [](const auto &test) { return test.param; });

} // namespace gaudi::test
