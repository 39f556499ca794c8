/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/ports/network.h"

#include "hlthunk_emulator/abstract_name.h"
#include "hlthunk_emulator/settings.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>

namespace gaudi::emu {

namespace {

/* Bits of a host: 16 of the box, 6 of the card, 2 of the port among the card's
 * external ones. Boxes begin with 1: 127.0.0.1 is the machine's own. */
constexpr unsigned port_bits = 2;
constexpr unsigned card_bits = 6;
constexpr uint32_t boxes     = (1u << 16) - 2;

/* HABANALABS_MAC_OUI_1 of the driver's hbl_cn.h. */
constexpr std::array<uint8_t, 3> vendor = {0xb0, 0xfd, 0x0b};

constexpr uint8_t loopback = 127;

/* By the box's name: FNV-1a of what is no number, and the numbers by their
 * value, so that names with numbers that are near do not meet. */
uint32_t number_of_box(const std::string &name)
{
    uint32_t text    = 2166136261u;
    uint64_t numbers = 0;
    uint64_t number  = 0;
    for (const char each : name) {
        if ((each >= '0') && (each <= '9')) {
            number = (10 * number + static_cast<uint64_t>(each - '0')) % boxes;
        } else {
            text    = (text ^ static_cast<uint8_t>(each)) * 16777619u;
            numbers = (1009 * numbers + std::exchange(number, 0)) % boxes;
        }
    }
    return static_cast<uint32_t>((text + 1009 * numbers + number) % boxes);
}

std::array<uint8_t, 3> bytes_of(network_host host)
{
    return {static_cast<uint8_t>(host >> 16), static_cast<uint8_t>(host >> 8),
            static_cast<uint8_t>(host)};
}

network_host host_of(const uint8_t *last)
{
    return (uint32_t{last[0]} << 16) | (uint32_t{last[1]} << 8) | last[2];
}

/* Other builds may have other packets. */
abstract_name name_of(network_host host)
{
    return abstract_name("network-1/" + ipv4_text(host));
}

} // namespace

network_host host_of(port_end port)
{
    const uint32_t box = 1 + number_of_box(get_settings().node);
    const uint32_t below =
        ports_of(port.card).external & ((1u << port.port) - 1);
    return (((box << card_bits) | port.card) << port_bits) |
           static_cast<uint32_t>(std::popcount(below));
}

std::string ipv4_text(network_host host)
{
    const auto bytes = bytes_of(host);
    return std::to_string(loopback) + '.' + std::to_string(bytes[0]) + '.' +
           std::to_string(bytes[1]) + '.' + std::to_string(bytes[2]);
}

/* A MAC is in an EUI-64, with the second bit inverted (RFC 4291, appendix A),
 * and an IPv4 address is mapped to an IPv6 one. */
bool find_gid(port_end port, unsigned index, ibv_gid &gid_p, int &type_p)
{
    const auto last = bytes_of(host_of(port));
    if (index > 3) {
        return false;
    }
    gid_p  = {};
    type_p = (index % 2 == 0) ? gid_is_roce_v1 : gid_is_roce_v2;
    if (index < 2) {
        const uint8_t eui[] = {static_cast<uint8_t>(vendor[0] ^ 2),
                               vendor[1],
                               vendor[2],
                               0xff,
                               0xfe,
                               last[0],
                               last[1],
                               last[2]};
        gid_p.raw[0]        = 0xfe;
        gid_p.raw[1]        = 0x80;
        std::memcpy(&gid_p.raw[8], eui, sizeof(eui));
    } else {
        gid_p.raw[10] = gid_p.raw[11] = 0xff;
        gid_p.raw[12]                 = loopback;
        std::memcpy(&gid_p.raw[13], last.data(), last.size());
    }
    return true;
}

gid_meaning read_gid(const ibv_gid &gid)
{
    constexpr uint8_t link_local[8] = {0xfe, 0x80};
    if (std::memcmp(gid.raw, link_local, sizeof(link_local)) != 0) {
        const bool known = (gid.raw[12] == loopback);
        return {true,
                known ? std::optional(host_of(&gid.raw[13])) : std::nullopt};
    }
    const uint8_t first[] = {static_cast<uint8_t>(vendor[0] ^ 2), vendor[1],
                             vendor[2], 0xff, 0xfe};
    const bool known = (std::memcmp(&gid.raw[8], first, sizeof(first)) == 0);
    return {false, known ? std::optional(host_of(&gid.raw[13])) : std::nullopt};
}

int network_port::open(port_end port)
{
    util::unique_fd made(
        socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const abstract_name name = name_of(host_of(port));
    if (!made || (bind(made.get(), name.get(), name.length) != 0)) {
        return -errno;
    }
    socket_             = std::move(made);
    closed_in_children_ = util::closed_in_children(socket_.get());
    return 0;
}

bool network_port::is_there(network_host host)
{
    const util::unique_fd asks(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const abstract_name name = name_of(host);
    return asks && (connect(asks.get(), name.get(), name.length) == 0);
}

int network_port::send(network_host to, const packet &head,
                       const char *bytes) const
{
    const abstract_name name = name_of(to);
    iovec parts[]            = {{const_cast<packet *>(&head), sizeof(head)},
                                {const_cast<char *>(bytes), head.bytes}};
    msghdr message{};
    message.msg_name    = const_cast<sockaddr *>(name.get());
    message.msg_namelen = name.length;
    message.msg_iov     = parts;
    message.msg_iovlen  = (head.bytes != 0) ? 2 : 1;
    return (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) ? 0 : -errno;
}

bool network_port::receive(packet &head_p,
                           std::array<char, packet_bytes> &bytes_p) const
{
    for (;;) {
        iovec parts[] = {{&head_p, sizeof(head_p)},
                         {bytes_p.data(), bytes_p.size()}};
        msghdr message{};
        message.msg_iov    = parts;
        message.msg_iovlen = 2;
        const ssize_t got  = recvmsg(socket_.get(), &message, 0);
        if (got < 0) {
            return false;
        }
        if ((got >= static_cast<ssize_t>(sizeof(head_p))) &&
            ((message.msg_flags & MSG_TRUNC) == 0) &&
            (static_cast<size_t>(got) - sizeof(head_p) == head_p.bytes)) {
            return true;
        }
    }
}

void network_port::clear() const
{
    packet head;
    std::array<char, packet_bytes> bytes;
    while (is_open() && receive(head, bytes)) {}
}

} // namespace gaudi::emu
