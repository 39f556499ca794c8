#include "gtest/tools/peer/cases.h"

#include <algorithm>
#include <iterator>

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

} // namespace

std::span<const message_kind> message_kinds(const std::string &traffic)
{
    if (traffic == "tag") {
        return tag_kinds;
    }
    if (traffic == "pieces") {
        return pieces_kinds;
    }
    if (traffic == "am") {
        return active_message_kinds;
    }
    return (traffic == "stream") ? stream_kinds
                                 : std::span<const message_kind>();
}

void for_each_message(
    std::span<const message_kind> kinds, std::span<const size_t> sizes,
    bool device_handles,
    const std::function<void(const message_kind &, const transfer &)> &run)
{
    constexpr kind_of_memory where[] = {kind_of_memory::heap,
                                        kind_of_memory::gaudi};
    counter transfers;
    for (const message_kind &kind : kinds) {
        for (const kind_of_memory from : where) {
            for (const kind_of_memory to : where) {
                if (kind.to_host_only && (to == kind_of_memory::gaudi)) {
                    continue;
                }
                for (const size_t size : sizes) {
                    if (size < kind.smallest) {
                        continue;
                    }
                    transfer what = transfers.next(kind.name, from, to, size);
                    if ((to == kind_of_memory::gaudi) && !device_handles) {
                        what.registered_to = false;
                    }
                    run(kind, what);
                }
            }
        }
    }
}

void for_each_rma(
    std::span<const size_t> sizes, bool device,
    const std::function<void(const rma_kind &, const transfer &)> &run)
{
    /* The device's is the last one. */
    const auto where =
        std::span(all_kinds).first(std::size(all_kinds) - (device ? 0 : 1));
    counter transfers;
    for (const rma_kind &kind : rma_kinds) {
        for (const kind_of_memory local : where) {
            for (const kind_of_memory remote : where) {
                for (const size_t size : sizes) {
                    for (const bool registered : {false, true}) {
                        transfer what =
                            transfers.next(kind.name, local, remote, size);
                        what.registered_from = registered;
                        run(kind, what);
                    }
                }
            }
        }
    }
}

memories::memories(const context &of, std::span<const size_t> sizes,
                   uint64_t wish, bool plain)
{
    const size_t room =
        *std::max_element(sizes.begin(), sizes.end()) + 2 * guard + last;
    for (const kind_of_memory kind : all_kinds) {
        all_[kind] = std::make_unique<memory>(of, kind, room, wish, plain);
    }
}

std::map<kind_of_memory, remote_memory> memories::open_from(side &by) const
{
    std::map<kind_of_memory, remote_memory> result;
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

} // namespace peer
