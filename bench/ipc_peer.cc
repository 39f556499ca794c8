/* SPDX-License-Identifier: BSD-3-Clause */
#include "ipc_peer.h"

#include "other_process.h"
#include "session.h"

#include <vector>

#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::bench {

namespace {

int peer_socket = -1;

/* The packed addresses of an interface. */
struct addresses {
    explicit addresses(const uct_iface_attr_t &attr)
        : device(attr.device_addr_len + 1), iface(attr.iface_addr_len + 1)
    {}
    auto *of_device()
    {
        return reinterpret_cast<uct_device_addr_t *>(device.data());
    }
    auto *of_iface()
    {
        return reinterpret_cast<uct_iface_addr_t *>(iface.data());
    }

    std::vector<char> device; /* never empty: they have to point somewhere */
    std::vector<char> iface;
};

/* Offers memory as soon as it is asked for, and ends with the other process. */
void offer_memory(int socket)
{
    char question;
    if (recv(socket, &question, 1, 0) != 1) {
        return; /* nobody wants it */
    }
    load_module("2"); /* session.h has the cards 0 and 1 */
    transport copy("gaudi_copy", "gaudi_cpy", "gaudi2");
    device_allocation memory(copy.md, session::max_size);
    transport ipc("gaudi_ipc", "gaudi_ipc", "gaudi");
    addresses own(ipc.attr);
    require(uct_iface_get_device_address(ipc.iface, own.of_device()),
            "get_device_address");
    require(uct_iface_get_address(ipc.iface, own.of_iface()), "get_address");
    uct_md_attr_t attr;
    require(uct_md_query(ipc.md, &attr), "md_query");
    std::vector<char> key(attr.rkey_packed_size);
    uct_mem_h memh;
    require(uct_md_mem_reg(ipc.md, memory.data(), session::max_size,
                           UCT_MD_MEM_ACCESS_ALL, &memh),
            "mem_reg");
    require(uct_md_mkey_pack(ipc.md, memh, key.data()), "mkey_pack");
    const auto address = reinterpret_cast<uint64_t>(memory.data());
    send_all(socket, own.device.data(), own.device.size());
    send_all(socket, own.iface.data(), own.iface.size());
    send_all(socket, key.data(), key.size());
    send_all(socket, &address, sizeof(address));
    for (;;) {
        pause();
    }
}

} // namespace

void ipc_peer::start()
{
    peer_socket = start_other_process(offer_memory);
}

ipc_peer &ipc_peer::instance()
{
    static auto *opened = new ipc_peer;
    return *opened;
}

ipc_peer::ipc_peer() : transport("gaudi_ipc", "gaudi_ipc", "gaudi")
{
    addresses other(attr);
    uct_md_attr_t md_attr;
    require(uct_md_query(md, &md_attr), "md_query");
    std::vector<char> key(md_attr.rkey_packed_size);
    send_all(peer_socket, "?", 1);
    receive_all(peer_socket, other.device.data(), other.device.size());
    receive_all(peer_socket, other.iface.data(), other.iface.size());
    receive_all(peer_socket, key.data(), key.size());
    receive_all(peer_socket, &address_, sizeof(address_));
    require(uct_rkey_unpack(find_component("gaudi_ipc"), key.data(), &key_),
            "rkey_unpack");
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                        UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface      = iface;
    params.dev_addr   = other.of_device();
    params.iface_addr = other.of_iface();
    require(uct_ep_create(&params, &to_peer_), "ep_create");
}

} // namespace gaudi::bench
