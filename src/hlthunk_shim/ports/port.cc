/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/port.h"

#include "util/stores.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>

#include <sys/random.h>

namespace gaudi::shim {

namespace {

/* Entries that may be read before the card is told, and of a queue: all that
 * can be posted fits beside them, at the peer as well. */
constexpr uint32_t update_every = 128;
constexpr uint32_t cq_entries   = 4096;
static_assert(queues_of_port * queue_places + update_every <= cq_entries);

/* Of fields that are the same on both. */
constexpr generation both = generation::gaudi2;

/* As HabanaAI/perftest has it (hbl_lib.c: config_requester_q): 33 ms. The
 * driver of Gaudi2's ports has the card try 254 times, whatever the retries say
 * (gaudi2_cn.c), so that a peer that does not answer is given up after 8 s. */
constexpr uint8_t ack_timeout = 13;
constexpr uint8_t retries     = 7;
constexpr uint8_t priority    = 1;

/* Of ibv_port_attr::phys_state, as perftest and HCL have it: ports within a box
 * are open, and so active, with their link down. */
constexpr uint8_t link_up = 5;

/* What went wrong in a call that returns errno, or -1 and errno. */
std::string explain(const char *call, int error)
{
    error = (error == -1) ? errno : std::abs(error);
    return std::string(call) + ": " + std::strerror(error);
}

void store(void *base, uint32_t offset, uint64_t value)
{
    auto *at = reinterpret_cast<uint64_t *>(static_cast<char *>(base) + offset);
    std::atomic_ref<uint64_t>(*at).store(value, std::memory_order_release);
}

uint32_t load(void *at)
{
    return std::atomic_ref<uint32_t>(*static_cast<uint32_t *>(at))
        .load(std::memory_order_acquire);
}

} // namespace

std::string port::open(const port_context &with, unsigned number,
                       std::unique_ptr<port> &port_p)
{
    std::unique_ptr<port> made(new port(with, number));
    std::string why = made->set_up();
    if (why.empty()) {
        port_p = std::move(made);
    }
    return why;
}

std::string port::set_up()
{
    hbldv_port_ex_attr settings{};
    settings.port_num = number_;
    settings.caps     = HBLDV_PORT_CAP_ADVANCED; /* else no responder */

    hbldv_wq_array_attr &queues  = settings.wq_arr_attr[0];
    queues.max_num_of_wqs        = 1 + queues_of_port; /* one is the driver's */
    queues.max_num_of_wqes_in_wq = queue_places;
    queues.mem_id                = HBLDV_MEM_HOST;
    queues.swq_granularity       = HBLDV_SWQE_GRAN_32B;

    const uint64_t self = uint64_t{1} << number_;
    int ret             = ((with_.set_up & self) != 0)
                              ? 0
                              : with_.lib.hbldv_set_port_ex(with_.context, &settings);
    if (ret != 0) {
        return explain("hbldv_set_port_ex", ret);
    }
    with_.set_up |= self;
    for (completion_queue *each : {&own_, &peers_}) {
        std::string why = make_queue(*each);
        if (!why.empty()) {
            return why;
        }
    }
    ret = make_fifo(common_fifo_);
    if (ret != 0) {
        return explain("hbldv_create_usr_fifo", ret);
    }
    ret = with_.lib.ibv_query_gid(with_.context, static_cast<uint8_t>(number_),
                                  0, &gid_);
    return (ret == 0) ? "" : explain("ibv_query_gid", ret);
}

std::string port::make_queue(completion_queue &made) const
{
    hbldv_cq_attr of_port{};
    of_port.port_num = static_cast<uint8_t>(number_);
    of_port.cq_type  = HBLDV_CQ_TYPE_QP;
    made.handle      = with_.lib.hbldv_create_cq(with_.context, int{cq_entries},
                                                 nullptr, 0, &of_port);
    if (made.handle == nullptr) {
        return explain("hbldv_create_cq", errno);
    }
    const int ret = with_.lib.hbldv_query_cq(made.handle, &made.memory);
    if (ret != 0) {
        return explain("hbldv_query_cq", ret);
    }
    const bool is_mapped = (made.memory.mem_cpu_addr != nullptr) &&
                           (made.memory.pi_cpu_addr != nullptr) &&
                           (made.memory.regs_cpu_addr != nullptr);
    return is_mapped ? ""
                     : with_.lib.file() + ": completion queues are not mapped";
}

/* Newer headers have a macro of the name, and the function an older structure,
 * with which this one begins. */
int port::query(const port_context &with, unsigned number,
                ibv_port_attr &known_p)
{
    return (with.lib.ibv_query_port)(
        with.context, static_cast<uint8_t>(number),
        reinterpret_cast<_compat_ibv_port_attr *>(&known_p));
}

bool port::is_up(const port_context &with, unsigned number)
{
    ibv_port_attr found{};
    return (query(with, number, found) == 0) && (found.phys_state == link_up);
}

port::~port()
{
    if (common_fifo_.handle != nullptr) {
        (void)with_.lib.hbldv_destroy_usr_fifo(common_fifo_.handle);
    }
    for (const completion_queue *each : {&own_, &peers_}) {
        if (each->handle != nullptr) {
            (void)with_.lib.ibv_destroy_cq(each->handle);
        }
    }
}

/* --- connections -----------------------------------------------------------*/

std::string port::create(queue_pair &made, queue_pair_address &address_p)
{
    ibv_qp_init_attr wanted{};
    wanted.send_cq          = own_.handle;
    wanted.recv_cq          = peers_.handle;
    wanted.cap.max_send_wr  = queue_places;
    wanted.cap.max_recv_wr  = 1;
    wanted.cap.max_send_sge = 1;
    wanted.cap.max_recv_sge = 1;
    wanted.qp_type          = IBV_QPT_RC;
    ibv_qp *handle          = with_.lib.ibv_create_qp(with_.domain, &wanted);
    if (handle == nullptr) {
        return explain("ibv_create_qp", errno);
    }
    made.handle = handle;
    {
        const std::lock_guard<util::brief_lock> guard(cq_lock_);
        queue_pairs_.push_back(&made);
    }
    std::string why = initialise(made, address_p);
    if (!why.empty()) {
        destroy(made);
    }
    return why;
}

std::string port::initialise(queue_pair &made, queue_pair_address &address_p)
{
    ibv_qp_attr init{};
    init.qp_state        = IBV_QPS_INIT;
    init.port_num        = static_cast<uint8_t>(number_);
    init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    hbldv_qp_attr own{};
    own.wq_type        = HBLDV_WQ_WRITE;
    own.wq_granularity = HBLDV_SWQE_GRAN_32B;
    int ret            = with_.lib.hbldv_modify_qp(made.handle, &init,
                                                   IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                                                       IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                                                   &own);
    if (ret != 0) {
        return explain("hbldv_modify_qp to INIT", ret);
    }
    hbldv_query_qp_attr known{};
    ret = with_.lib.hbldv_query_qp(made.handle, &known);
    if (ret != 0) {
        return explain("hbldv_query_qp", ret);
    }
    ret = make_fifo(made.own_fifo);
    if (made.own_fifo.handle == nullptr) {
        made.fifo = &common_fifo_;
    } else if (ret == 0) {
        made.fifo = &made.own_fifo;
    } else {
        return explain("hbldv_create_usr_fifo", ret);
    }
    if (getrandom(&made.key, sizeof(made.key), 0) != sizeof(made.key)) {
        return explain("getrandom", EAGAIN);
    }
    {
        const std::lock_guard<util::brief_lock> guard(cq_lock_);
        made.number = known.qp_num;
    }
    address_p.number = known.qp_num;
    address_p.key    = made.key;
    std::memcpy(address_p.gid.data(), gid_.raw, address_p.gid.size());
    return "";
}

int port::make_fifo(doorbell_fifo &made) const
{
    hbldv_usr_fifo_attr doorbells{};
    doorbells.port_num      = number_;
    doorbells.usr_fifo_type = HBLDV_USR_FIFO_TYPE_DB;
    made.handle = with_.lib.hbldv_create_usr_fifo(with_.context, &doorbells);
    if (made.handle == nullptr) {
        return errno;
    }
    made.units            = made.handle->size / counting_.unit_bytes;
    const uint32_t needed = counting_.doorbell_units + counting_.guard_units;
    return ((made.handle->ci_cpu_addr != nullptr) &&
            (made.handle->regs_cpu_addr != nullptr) &&
            std::has_single_bit(made.units) && (made.units > needed))
               ? 0
               : EPROTO;
}

std::string port::connect(queue_pair &own, const queue_pair_address &peer)
{
    ibv_gid there;
    std::memcpy(there.raw, peer.gid.data(), peer.gid.size());
    ibv_qp_attr receive{};
    receive.qp_state              = IBV_QPS_RTR;
    receive.path_mtu              = IBV_MTU_4096;
    receive.dest_qp_num           = peer.number;
    receive.max_dest_rd_atomic    = 1;
    receive.ah_attr.port_num      = static_cast<uint8_t>(number_);
    receive.ah_attr.is_global     = 1;
    receive.ah_attr.grh.hop_limit = 0xff;
    receive.ah_attr.grh.dgid      = there;
    hbldv_qp_attr ours{};
    ours.local_key      = own.key;
    ours.wq_granularity = HBLDV_SWQE_GRAN_32B;
    ours.priority       = priority;
    int ret             = with_.lib.hbldv_modify_qp(
                    own.handle, &receive,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                    &ours);
    if (ret != 0) {
        return explain("hbldv_modify_qp to RTR", ret);
    }
    ibv_qp_attr send{};
    send.qp_state      = IBV_QPS_RTS;
    send.timeout       = ack_timeout;
    send.retry_cnt     = retries;
    send.rnr_retry     = retries;
    send.max_rd_atomic = 1;
    hbldv_qp_attr theirs{};
    theirs.remote_key     = peer.key;
    theirs.wq_type        = HBLDV_WQ_WRITE;
    theirs.wq_granularity = HBLDV_SWQE_GRAN_32B;
    theirs.priority       = priority;
    ret                   = with_.lib.hbldv_modify_qp(own.handle, &send,
                                                      IBV_QP_STATE | IBV_QP_TIMEOUT |
                                                          IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                                                      &theirs);
    if (ret != 0) {
        return explain("hbldv_modify_qp to RTS", ret);
    }
    hbldv_query_qp_attr known{};
    ret = with_.lib.hbldv_query_qp(own.handle, &known);
    if ((ret != 0) || (known.swq_cpu_addr == nullptr) ||
        (known.rwq_cpu_addr == nullptr)) {
        return (ret != 0) ? explain("hbldv_query_qp", ret)
                          : "work queues are not in host memory";
    }
    own.send    = static_cast<send_entry *>(known.swq_cpu_addr);
    own.receive = static_cast<receive_entry *>(known.rwq_cpu_addr);
    return "";
}

void port::destroy(queue_pair &old)
{
    (void)with_.lib.ibv_destroy_qp(old.handle);
    if (old.own_fifo.handle != nullptr) {
        (void)with_.lib.hbldv_destroy_usr_fifo(old.own_fifo.handle);
        old.own_fifo.handle = nullptr;
    }
    const std::lock_guard<util::brief_lock> guard(cq_lock_);
    drain(); /* its number may be another one's next */
    std::erase(queue_pairs_, &old);
    old.handle = nullptr;
    ++with_.changes;
}

void port::fail(const ibv_qp *one)
{
    const std::lock_guard<util::brief_lock> guard(cq_lock_);
    for (queue_pair *each : queue_pairs_) {
        if ((one == nullptr) || (each->handle == one)) {
            each->failed.store(true, std::memory_order_release);
        }
    }
    ++with_.changes;
}

/* --- without system calls --------------------------------------------------*/

/* Word by word: a load of more than one would wait for the stores that made
 * them. */
template <size_t words>
static void copy(const entry<words> &made, entry<words> &to)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < words; ++i) {
        std::atomic_ref(to[i]).store(made[i], std::memory_order_relaxed);
    }
}

void port::write(queue_pair &to, uint64_t remote, uint64_t local,
                 uint32_t size) const
{
    const bool in_send =
        (with_.asks.load(std::memory_order_relaxed) == asking::in_send);
    put(to, {remote, local, size, 0, in_send, !in_send});
}

void port::put(queue_pair &to, port_write what) const
{
    const uint32_t posted = to.posted.load(std::memory_order_relaxed);
    const uint32_t place  = posted % queue_places;
    what.index            = place;
    if (with_.kind == generation::gaudi2) {
        copy(make_send_entry<generation::gaudi2>(what), to.send[place]);
        copy(make_receive_entry<generation::gaudi2>(what), to.receive[place]);
    } else {
        copy(make_send_entry<generation::gaudi3>(what), to.send[place]);
        copy(make_receive_entry<generation::gaudi3>(what), to.receive[place]);
    }
    to.posted.store(posted + 1, std::memory_order_release);
    /* The card has read the lines of the entry after the next one. */
    const uint32_t later = (place + 2) % queue_places;
    util::claim_line(&to.send[later]);
    util::claim_line(&to.receive[later]);
}

/* Whether an entry asks for a completion in the send and in the receive entry.
 */
static bool asks_in_send(const queue_pair &of, uint32_t number)
{
    return get<both>(of.send[number % queue_places], send_wqe::completion) != 0;
}

static bool asks_in_receive(const queue_pair &of, uint32_t number)
{
    return get<both>(of.receive[number % queue_places],
                     receive_wqe::completion) != 0;
}

bool port::may_repeat(const queue_pair &of) const
{
    const uint32_t last = of.posted.load(std::memory_order_relaxed) - 1;
    return !with_.is_answered.load(std::memory_order_relaxed) ||
           (asks_in_send(of, last) !=
            (with_.asks.load(std::memory_order_relaxed) == asking::in_send));
}

void port::repeat(queue_pair &of) const
{
    const uint32_t last = of.posted.load(std::memory_order_relaxed) - 1;
    const auto address  = [&](const field &low, const field &high) {
        const send_entry &entry = of.send[last % queue_places];
        return get<both>(entry, low) | (uint64_t{get<both>(entry, high)} << 32);
    };
    put(of,
        {address(send_wqe::remote_low, send_wqe::remote_high),
         address(send_wqe::local_low, send_wqe::local_high), 1, 0, true, true});
}

/* No public program has two queue pairs ring in one FIFO: there, the card is to
 * have taken the doorbell before. */
bool port::ring(queue_pair &of) const
{
    doorbell_fifo &fifo = *of.fifo;
    std::unique_lock<util::brief_lock> turn(fifo.lock, std::defer_lock);
    const bool is_common = (&fifo == &common_fifo_);
    if (is_common && !turn.try_lock()) {
        return false;
    }
    const uint32_t needed =
        is_common ? fifo.units - 1
                  : counting_.doorbell_units + counting_.guard_units;
    const auto room = [&] {
        return fifo.units - ((fifo.used - fifo.consumed) & (fifo.units - 1));
    };
    if (room() <= needed) { /* else what the card writes need not be read */
        fifo.consumed = load(fifo.handle->ci_cpu_addr);
        if (room() <= needed) {
            return false;
        }
    }
    util::order_stores();
    const uint32_t next = of.posted.load(std::memory_order_relaxed);
    store(fifo.handle->regs_cpu_addr, fifo.handle->regs_offset,
          make_doorbell(number_, of.number, next & counting_.index_mask));
    fifo.used += counting_.doorbell_units;
    return true;
}

void port::poll()
{
    if (cq_lock_.try_lock()) { /* else another thread does it now */
        drain();
        cq_lock_.unlock();
    }
}

template <typename Each>
void port::drain(completion_queue &from, Each &&each) const
{
    auto *ring = static_cast<cq_entry *>(from.memory.mem_cpu_addr);
    for (const uint32_t produced = load(from.memory.pi_cpu_addr);
         from.consumed != produced; ++from.consumed) {
        cq_entry &at         = ring[from.consumed % cq_entries];
        const cq_entry found = at;
        at[0]                = 0;
        each(found);
    }
    if (from.consumed - from.told >= update_every) {
        from.told = from.consumed;
        store(from.memory.regs_cpu_addr, from.memory.regs_offset,
              (with_.kind == generation::gaudi2)
                  ? make_cq_update<generation::gaudi2>(from.memory.cq_num,
                                                       from.consumed)
                  : make_cq_update<generation::gaudi3>(from.memory.cq_num,
                                                       from.consumed));
    }
}

void port::drain()
{
    drain(own_, [this](const cq_entry &found) { note_completion(found); });
    drain(peers_, [](const cq_entry &) {});
}

/* Of these entries, the last one alone has a completion. */
void port::note_answer(const queue_pair &of, uint32_t first,
                       uint32_t last) const
{
    const bool in_send = asks_in_send(of, last);
    if (in_send != asks_in_receive(of, last)) {
        with_.asks.store(in_send ? asking::in_send : asking::in_receive);
        with_.is_answered.store(true);
    } else if (first != last) {
        with_.asks.store(asks_in_send(of, last - 1) ? asking::in_receive
                                                    : asking::in_send);
    }
}

/* Writes of a queue pair end in their order, so that one whose entry is not
 * there (perftest steps over those) has ended with the next. */
void port::note_completion(const cq_entry &found)
{
    const uint32_t number = get<both>(found, cqe::qp);
    const auto at =
        std::ranges::find_if(queue_pairs_, [&](const queue_pair *each) {
            return each->number == number;
        });
    if ((get<both>(found, cqe::is_valid) == 0) || (at == queue_pairs_.end())) {
        return;
    }
    queue_pair &of        = **at;
    const uint32_t before = of.completed.load(std::memory_order_relaxed);
    const uint32_t ended =
        1 + ((get<both>(found, cqe::index) - before) % queue_places);
    if (ended > of.posted.load(std::memory_order_relaxed) - before) {
        of.failed.store(true, std::memory_order_release);
        ++with_.changes;
    } else {
        if (!with_.is_answered.load(std::memory_order_relaxed)) {
            note_answer(of, before, before + ended - 1);
        }
        of.completed.store(before + ended, std::memory_order_release);
    }
}

} // namespace gaudi::shim
