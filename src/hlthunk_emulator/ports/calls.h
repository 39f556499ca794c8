/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What libhbl calls of the emulator: the kernel's side of a card's verbs
 * device.
 *
 * libhbl finds the emulator of its process by being linked with it, and has
 * verbs' objects and habits; rules and work are here. Functions return a number
 * from 0 on, or -errno. Ports have verbs' numbers. Any thread; in a forked
 * child there are no contexts.
 */
#pragma once

#include "hlthunk_shim/abi/ports.h"

#include <cstdint>

namespace gaudi::emu {

/** What comes out of the descriptor for asynchronous events. */
struct port_event {
    uint64_t object; /**< as it was created with; 0: of no CQ or QP */
    uint32_t type;   /**< ibv_event_type */
    uint32_t port_num;
};

/** What is to be known to create a QP. */
struct port_qp_request {
    uint64_t object; /**< names it in events */
    int send_cq;
    int receive_cq;
    uint32_t send_wqes;
};

/** What there is to know of a QP. */
struct port_qp_view {
    ibv_qp_state state;
    uint32_t qpn;      /**< the card's */
    uint32_t dest_qpn; /**< the peer's */
    uint32_t port_num;
    uint32_t syndrome; /**< of its last error */
    uint32_t send_wqes;
    void *send;
    void *receive;
};

struct port_calls {
    /** Cards of the box, and what they are. */
    unsigned (*cards)();
    uint32_t (*pci_id)();

    unsigned (*ports)(unsigned card); /**< that it has */

    /**
     * Open a card's verbs device.
     *
     * @param core_fd     The card's compute node, open in this process.
     * @param ports_mask  By numbers; 0: all.
     * @param event_fd    Gets a port_event each; stays the caller's.
     * @return A number for the calls below.
     */
    int (*open)(unsigned card, int core_fd, uint64_t ports_mask, int event_fd);
    /** All that it has goes with it. */
    int (*close)(int context);
    int (*query_device)(int context, hbldv_device_attr &attr_p);

    int (*allocate_pd)(int context);
    int (*free_pd)(int context);

    int (*query_port)(int context, unsigned port, ibv_port_attr &attr_p);
    int (*query_port_ex)(int context, unsigned port,
                         hbldv_query_port_attr &attr_p);
    int (*query_gid)(int context, unsigned port, unsigned index,
                     ibv_gid &gid_p);
    int (*set_port)(int context, const hbldv_port_ex_attr &attr);

    /** @param attr_p  Filled, but for ibvcq. @param entries_p  That it has. */
    int (*create_cq)(int context, unsigned entries, const hbldv_cq_attr &attr,
                     uint64_t object, hbldv_query_cq_attr &attr_p,
                     int &entries_p);
    int (*destroy_cq)(int context, int cq);

    int (*create_qp)(int context, const port_qp_request &request);
    int (*modify_qp)(int context, int qp, const ibv_qp_attr &attr, int mask,
                     const hbldv_qp_attr &more);
    int (*query_qp)(int context, int qp, port_qp_view &view_p);
    int (*destroy_qp)(int context, int qp);

    int (*create_fifo)(int context, const hbldv_usr_fifo_attr &attr,
                       hbldv_usr_fifo &fifo_p);
    int (*destroy_fifo)(int context, int fifo);
};

} // namespace gaudi::emu

/** Those of the emulator in this process. */
extern "C" const gaudi::emu::port_calls *hlthunk_emu_ports();
