/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/cases.h"

#include "gtest/tools/peer/check.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace peer {

namespace {

constexpr size_t last = 63; /* largest skew */

/* Numbers the transfers, and derives what depends on the number. */
class counter {
public:
    transfer next(const char *kind, kind_of_memory from, kind_of_memory to,
                  size_t size)
    {
        ++count_;
        return {.name = std::string(kind) + " from " + name_of(from) + " to " +
                        name_of(to) + ", " + std::to_string(size) + " bytes",
                .from            = from,
                .to              = to,
                .size            = size,
                .seed            = 10 + count_,
                .skew_from       = (count_ * 7) % (last + 1),
                .skew_to         = (count_ * 5 + 1) % (last + 1),
                .registered_from = (count_ & 1) != 0,
                .registered_to   = (count_ & 2) != 0};
    }

private:
    unsigned count_ = 0;
};

void run_message(const own_ends &here, const message_kind &kind,
                 const transfer &what)
{
    set_case(what.name);
    std::optional<slot> from;
    std::optional<slot> to;
    if (here.active != nullptr) {
        from.emplace(here.sources->from(what));
        prepare(*from, what.seed);
    }
    if (here.passive != nullptr) {
        to.emplace(here.targets->to(what));
        prepare(*to, seed_before);
    }
    std::optional<operation> coming;
    if (to && kind.receives_first) {
        coming = kind.receive(*here.passive, *to);
    }
    here.meet(what, false);
    std::optional<operation> going;
    if (from) {
        going = kind.send(*here.active, *from);
    }
    if (to && !coming) {
        if (kind.has_come != nullptr) {
            here.finish(
                operation([&] { return kind.has_come(*here.passive, *to); }));
        }
        coming = kind.receive(*here.passive, *to);
    }
    for (const auto &one : {coming, going}) {
        if (one) {
            here.finish(*one);
        }
    }
    here.meet(what, true);
    if (from) {
        expect(*from, what.seed, what.seed);
    }
    if (to) {
        expect(*to, what.seed, seed_before);
    }
}

void run_one_rma(const own_ends &here, const remote_memories &remote,
                 const rma_kind &kind, const transfer &what)
{
    struct place {
        slot where;
        unsigned seed; /* of what is there before */
    };
    set_case(what.name);
    std::vector<place> places;
    if (here.active != nullptr) {
        places.push_back(
            {here.sources->from(what), kind.is_put ? what.seed : seed_before});
    }
    if (here.passive != nullptr) {
        places.push_back(
            {here.targets->to(what), kind.is_put ? seed_before : what.seed});
    }
    for (const auto &[where, seed] : places) {
        prepare(where, seed);
    }
    here.meet(what, false);
    if (here.active != nullptr) {
        here.finish(kind.start(*here.active, places.front().where,
                               remote.at(what.to), guard + what.skew_to));
    }
    here.meet(what, true);
    for (const auto &[where, seed] : places) {
        expect(where, what.seed, seed);
    }
}

} // namespace

memories::memories(const context &of, std::span<const size_t> sizes,
                   uint64_t wish, bool plain)
{
    const size_t room =
        *std::max_element(sizes.begin(), sizes.end()) + 2 * guard + last;
    for (const kind_of_memory kind : all_kinds) {
        all_[kind] = std::make_unique<memory>(of, kind, room, wish, plain);
    }
}

remote_memories memories::open_from(side &by) const
{
    remote_memories result;
    for (const auto &[kind, mine] : all_) {
        result.try_emplace(kind, by.ep(), mine->describe());
    }
    return result;
}

slot memories::from(const transfer &what)
{
    return {at(what.from), guard + what.skew_from, what.size,
            what.registered_from};
}

slot memories::to(const transfer &what)
{
    return {at(what.to), guard + what.skew_to, what.size, what.registered_to};
}

void own_ends::finish(operation going) const
{
    std::vector<worker *> workers;
    for (const side *one : {active, passive}) {
        if (one != nullptr) {
            workers.push_back(&one->of());
        }
    }
    peer::finish(std::move(going), workers);
}

void run_messages(const own_ends &here, std::span<const message_kind> kinds,
                  std::span<const size_t> sizes, bool device_handles)
{
    constexpr kind_of_memory where[] = {kind_of_memory::heap,
                                        kind_of_memory::gaudi};
    counter transfers;
    for (const message_kind &kind : kinds) {
        for (const kind_of_memory from : where) {
            for (const kind_of_memory to : where) {
                for (const size_t size : sizes) {
                    if (size < kind.smallest) {
                        continue;
                    }
                    transfer what = transfers.next(kind.name, from, to, size);
                    if ((to == kind_of_memory::gaudi) && !device_handles) {
                        what.registered_to = false;
                    }
                    run_message(here, kind, what);
                }
            }
        }
    }
}

void run_rma(const own_ends &here, const remote_memories &remote,
             std::span<const size_t> sizes, bool device)
{
    /* The device's is the last one. */
    const auto where =
        std::span(all_kinds).first(std::size(all_kinds) - (device ? 0 : 1));
    counter transfers;
    for (const rma_kind &kind : rma_kinds) {
        for (const kind_of_memory local : where) {
            for (const kind_of_memory target : where) {
                for (const size_t size : sizes) {
                    for (const bool registered : {false, true}) {
                        transfer what =
                            transfers.next(kind.name, local, target, size);
                        what.registered_from = registered;
                        run_one_rma(here, remote, kind, what);
                    }
                }
            }
        }
    }
}

} // namespace peer
