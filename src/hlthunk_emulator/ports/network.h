/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The network that external ports lead to: a switch, by which each reaches each
 * other one of this machine, of whatever box.
 *
 * An external port is a datagram socket with the port's address in its abstract
 * name, which its user's processes of the network namespace send to. As on a
 * real network, anybody may: a queue pair takes what names its number and key.
 * The kernel holds a sender up when the receiver has no room.
 *
 * Addresses follow from the name of the box, the card and the port. IPv4 ones
 * are of the loopback network, so that what goes to them by the machine's own
 * sockets stays on this machine.
 */
#pragma once

#include "hlthunk_emulator/ports/wire.h"
#include "hlthunk_emulator/ports/wiring.h"
#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace gaudi::emu {

/** What MAC and IPv4 address of an external port have in common: their last
 *  24 bits. */
using network_host = uint32_t;

network_host host_of(port_end port);

/** "127.1.2.3" */
std::string ipv4_text(network_host host);

/** Whose address a GID is, as the driver takes it (is_l2_gid of hbl_verbs.c):
 *  a MAC's, or an IPv4 one. */
struct gid_meaning {
    bool is_ipv4;
    std::optional<network_host> host; /**< none: no port has such an address */
};
gid_meaning read_gid(const ibv_gid &gid);

/* Of ibv_query_gid_type. */
inline constexpr int gid_is_roce_v1 = 0;
inline constexpr int gid_is_roce_v2 = 1;

/** What Linux' table of GIDs has for an interface with an IPv4 address
 *  (drivers/infiniband/core/roce_gid_mgmt.c): that of the MAC, and that of the
 *  address, each for both versions of RoCE.
 *  @return false behind their end. */
bool find_gid(port_end port, unsigned index, ibv_gid &gid_p, int &type_p);

class network_port {
public:
    /** Have the address of a port. @return 0 or -errno. */
    int open(port_end port);

    [[nodiscard]] bool is_open() const { return static_cast<bool>(socket_); }

    /** Whether somebody has an address, as the kernel finds out by ARP. */
    static bool is_there(network_host host);

    /** Send a packet, whose bytes are head.bytes. One of no size is an
     *  acknowledgement. @return 0, -EAGAIN without room for it now, or another
     *  -errno: there is nobody. */
    [[nodiscard]] int send(network_host to, const packet &head,
                           const char *bytes) const;

    /** The next packet, whole. @return false when there is none. */
    bool receive(packet &head_p, std::array<char, packet_bytes> &bytes_p) const;

    /** Throw away what is there. */
    void clear() const;

private:
    util::unique_fd socket_;
    util::closed_in_children closed_in_children_;
};

} // namespace gaudi::emu
