/* How channels over cards' ports come about: the process that wants one sends a
 * letter with its end, in a chunk that both have, and gets it back with the
 * other end. */
#include "uct/gaudi/base/transfer/channel.h"

#include <cerrno>
#include <cstring>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::base {

namespace {

/* Before those are asked for again that could not be had. */
constexpr double retry_s = 5;

bool may_come(int error)
{
    return (error == -EAGAIN) || (error == -EINPROGRESS);
}

} // namespace

int channel_set::ask_for_ports(port_way &way, card &from, remote_memory &there,
                               channel &peer)
{
    std::unique_ptr<shim::port_link> made;
    chunk_ptr letter = peer.take_chunk(0);
    if (letter == nullptr) {
        return -EAGAIN;
    }
    if (sizeof(shim::port_address) > peer.chunk_bytes()) {
        return -EMSGSIZE;
    }
    int error = shim::port_link::create(from.device(), made);
    if (error == 0) {
        std::memcpy(letter->data, &made->address(), sizeof(shim::port_address));
        error = peer.others()->ask_for_ports(there, letter->va, ++last_number_);
    }
    if (error == 0) {
        way.asked_for = std::move(made);
        way.letter    = std::move(letter);
        way.number    = last_number_;
    }
    return error;
}

int channel_set::take_ports(port_way &way, card &from, channel &peer,
                            bool waits)
{
    int error =
        peer.others()->ports_answer(waits ? channel::drain_timeout_us : 0);
    if (error == -EINPROGRESS) {
        return error;
    }
    auto ports             = std::move(way.asked_for);
    const chunk_ptr letter = std::move(way.letter);
    if (error == 0) {
        shim::port_address theirs;
        std::memcpy(&theirs, letter->data, sizeof(theirs));
        error = ports->connect(theirs);
    }
    if (error == 0) {
        way.by = &add(channel::create(from, std::move(ports), &peer, way.number,
                                      options_, *counts_));
    }
    return error;
}

int channel_set::get_ports(card &from, remote_memory &there, channel &peer,
                           bool waits, channel *&channel_p)
{
    int error = -ENOMEM;
    (void)guarded([&] {
        port_way &way = ways_[{from.place(), &peer, there.card_address()}];
        error         = get_ports(way, from, there, peer, waits);
        channel_p     = way.by;
        return UCS_OK;
    });
    return error;
}

int channel_set::get_ports(port_way &way, card &from, remote_memory &there,
                           channel &peer, bool waits)
{
    if (ucs_likely((way.by != nullptr) && !way.by->is_over())) {
        return 0;
    }
    const ucs_time_t now = ucs_get_time();
    if (now < way.retries) {
        return way.error;
    }
    int error = (way.by != nullptr) ? -ENETDOWN
                : (way.asked_for == nullptr)
                    ? ask_for_ports(way, from, there, peer)
                    : 0;
    way.by    = nullptr;
    if (error == 0) {
        error = take_ports(way, from, peer, waits);
    }
    if ((error != 0) && !may_come(error)) {
        way.error   = error;
        way.retries = now + ucs_time_from_sec(retry_s);
        ucs_debug("%s: no ports to the card at %#x of %s: %s",
                  from.name().c_str(), static_cast<unsigned>(there.card_address()),
                  peer.name(), std::strerror(-error));
    }
    return error;
}

int channel_set::accept_ports(card &from, shim::port_address &letter,
                              channel *&channel_p)
{
    std::unique_ptr<shim::port_link> made;
    int error = shim::port_link::create(from.device(), made);
    if (error == 0) {
        error = made->connect(letter);
    }
    if (error == 0) {
        letter    = made->address();
        channel_p = &add(channel::create(from, std::move(made), nullptr, 0,
                                         options_, *counts_));
    }
    return error;
}

} // namespace gaudi::base
