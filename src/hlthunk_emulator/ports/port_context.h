/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One card's ports, as one process has them open through verbs: queues, queue
 * pairs, and what is under way between them and the wires.
 *
 * Rules are those of hbl_verbs.c, hbl_cn.c, hbl_cn_qp.c and gaudi2_cn.c of
 * HabanaAI/drivers.gpu.linux-nic.kernel, where no other source is named. Of
 * Gaudi3 the driver is not public: what is not known to differ is as on Gaudi2.
 *
 * Not thread-safe: the lock of port_engine protects it. It takes the card's
 * lock, for as long as bytes are copied, and never the other way round.
 */
#pragma once

#include "hlthunk_emulator/ports/calls.h"
#include "hlthunk_emulator/ports/doubled_pages.h"
#include "hlthunk_emulator/ports/formats.h"
#include "hlthunk_emulator/ports/wire.h"
#include "hlthunk_emulator/ports/wiring.h"
#include "hlthunk_emulator/software_card.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace gaudi::emu {

class port_watch;

/** The lowest number that nobody has. */
template <typename IsTaken>
std::optional<uint32_t> free_number(uint32_t first, uint32_t count,
                                    IsTaken &&is_taken)
{
    for (uint32_t number = first; number < first + count; ++number) {
        if (!is_taken(number)) {
            return number;
        }
    }
    return std::nullopt;
}

class port_context {
public:
    using clock = std::chrono::steady_clock;

    /** @param node  The card's compute node. */
    port_context(unsigned card, const node_id &node, uint32_t ports,
                 int event_fd);
    ~port_context();
    port_context(const port_context &)            = delete;
    port_context &operator=(const port_context &) = delete;

    [[nodiscard]] unsigned card() const { return card_; }

    /* --- what programs call: as port_calls has it, see there --- */

    int query_device(hbldv_device_attr &attr_p) const;
    int allocate_pd();
    int free_pd();
    int query_port(unsigned number, ibv_port_attr &attr_p) const;
    int query_port_ex(unsigned number, hbldv_query_port_attr &attr_p) const;
    int query_gid(unsigned number, unsigned index, ibv_gid &gid_p) const;
    int set_port(const hbldv_port_ex_attr &attr);
    int create_cq(unsigned entries, const hbldv_cq_attr &attr, uint64_t object,
                  hbldv_query_cq_attr &attr_p, int &entries_p);
    int destroy_cq(int cq);
    int create_qp(const port_qp_request &request);
    int modify_qp(int qp, const ibv_qp_attr &attr, int mask,
                  const hbldv_qp_attr &more);
    int query_qp(int qp, port_qp_view &view_p) const;
    int destroy_qp(int qp);
    int create_fifo(const hbldv_usr_fifo_attr &attr, hbldv_usr_fifo &fifo_p);
    int destroy_fifo(int id);

    /* --- what the engine calls --- */

    /** Do what there is to do. @param due_p  Made earlier, if there will be
     *  more then. @return Whether there was any. */
    bool run(clock::time_point now, clock::time_point &due_p);

    /** Find out whether links have changed, or the card is gone. */
    void look_around();

    /** Reset all queue pairs, before the context goes.
     *  @return Whether none is left. */
    bool stop();

private:
    struct completion_queue {
        unsigned port;
        uint32_t number; /* of the port's */
        uint32_t entries;
        uint64_t object;
        doubled_pages memory;
        doubled_pages pi;
        doubled_pages registers;
        uint32_t produced = 0;
        uint32_t consumed = 0; /* as far as the program has said */
        bool overrun      = false;
        unsigned users    = 0; /* QPs */
    };

    struct fifo {
        unsigned port;
        uint32_t number; /* of the port's */
        doubled_pages ci;
        doubled_pages registers;
        uint32_t consumed = 0; /* doorbells */
        uint32_t qpn      = 0; /* of the last one */
        bool warned       = false;
    };

    struct queue_pair {
        port_qp_request created;
        ibv_qp_state state = IBV_QPS_RESET;
        unsigned port      = 0;
        uint32_t qpn       = 0;
        uint32_t dest_qpn  = 0;
        uint32_t local_key = 0, remote_key = 0;
        uint32_t syndrome = 0;
        bool is_loopback  = false;
        std::optional<clock::duration> timeout; /* none: never */
        doubled_pages send, receive;
        /* What it sends: numbers of WQEs, modulo 2^32. */
        uint32_t posted = 0, next = 0, acknowledged = 0;
        uint32_t offset   = 0; /* of the message that is being sent */
        uint32_t executed = 0; /* that were looked at the first time */
        uint32_t watched  = 0; /* of which the watch knows */
        uint32_t lost     = 0; /* whose completion gets lost: number + 1 */
        uint64_t sent     = 0; /* up to where on the wire */
        clock::time_point timer{};
        unsigned waited = 0; /* for an answer: `patience` for each retry */
        /* What it receives. */
        uint32_t expected = 0;
        uint32_t got      = 0; /* bytes of that message */
        clock::time_point drained_at{};
    };

    struct port {
        bool is_set_up   = false;
        bool advanced    = false;
        bool checked     = true; /* indices of WQEs are */
        bool was_up      = false;
        uint32_t queues  = 0; /* one is the driver's; 0: there are none */
        uint32_t entries = 0;
        bool on_device   = false;
        std::vector<queue_pair *> pairs; /* that have a number */
    };

    enum class touched { yes, unmapped, gone };

    static constexpr unsigned no_port = ~0u;

    unsigned find_port(unsigned number) const;
    int check_open(unsigned which) const;
    queue_pair *find_qp(int qp);
    queue_pair *find_qpn(unsigned which, uint32_t qpn);
    int allocate(queue_pair &of, const ibv_qp_attr &attr,
                 const hbldv_qp_attr &more);
    int make_ready_to_receive(queue_pair &of, const ibv_qp_attr &attr,
                              const hbldv_qp_attr &more);
    int make_ready_to_send(queue_pair &of, const ibv_qp_attr &attr,
                           const hbldv_qp_attr &more);
    void reset(queue_pair &of);
    void release(queue_pair &of);

    void tell(uint32_t type, uint64_t object, uint32_t port_num) const;
    void fail(queue_pair &of, syndrome why, bool as_requester,
              const char *what);
    void complete(int cq, uint32_t qpn, bool as_requester, uint32_t index,
                  uint32_t tag, uint32_t size);

    template <typename Work>
    touched touch(uint64_t va, uint64_t size, Work &&work);
    template <typename Move>
    touched for_each_piece(software_card::context &of, uint64_t va,
                           uint64_t size, Move &&move);

    bool read_doorbell(fifo &from);
    void ring(fifo &from, const doorbell &bell);
    bool send(queue_pair &from, clock::time_point now,
              clock::time_point &due_p);
    bool begin(queue_pair &from, const send_wqe &wqe);
    bool check(queue_pair &from, const send_wqe &wqe);
    bool send_piece(queue_pair &from, const send_wqe &wqe);
    void check_timer(queue_pair &of, clock::time_point now,
                     clock::time_point &due_p);
    void receive(unsigned which, const packet &head,
                 const wire_end::room &bytes);
    void answer(queue_pair &by);
    void take_answer(unsigned which, const acknowledgement &answer);
    void end_message(queue_pair &of);

    const bool is_gaudi3_;
    const unsigned card_;
    const node_id node_;
    const uint32_t mask_; /* by the hardware's numbers */
    const int event_fd_;
    const box_wires &wires_ = box_wires::instance();
    std::unique_ptr<port_watch> watch_; /* nullptr: no model */
    bool has_pd_    = false;
    bool is_gone_   = false; /* the card is, */
    bool gone_told_ = false; /* and the program knows */
    std::array<port, ports_of_card> ports_;
    int next_id_ = 0;
    std::map<int, completion_queue> cqs_;
    std::map<int, fifo> fifos_;
    std::map<int, queue_pair> pairs_;
    /* Destroyed or reset ones, which still receive; the first is done first. */
    std::list<queue_pair> draining_;
};

} // namespace gaudi::emu
