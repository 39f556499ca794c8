/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The ports of cards as programs use them: libhbl, and queues that are written
 * by hand. Encoders are the tests' own.
 */
#pragma once

#include "hlthunk_shim/abi/ports.h"
#include "gtest/emu/fixture.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include <dlfcn.h>
#include <poll.h>

#undef ibv_query_port
#undef ibv_reg_mr

namespace gaudi::test {

/** Before the emulator is loaded. */
[[maybe_unused]] inline const int with_ports =
    setenv("HLTHUNK_EMU_PORTS", "y", 0);

/** A function of libhbl.
 *  @param library  In the build's folder of libraries. */
template <typename Function>
Function *hbl(const char *name, const char *library = "hlthunk-emu")
{
    (void)api(); /* its emulator is the one that is there */
    const std::string path =
        std::string(GAUDI_BUILD_DIR) + "/lib/" + library + "/libhbl.so";
    void *const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *const found  = (handle != nullptr) ? dlsym(handle, name) : nullptr;
    EXPECT_NE(found, nullptr) << dlerror();
    return reinterpret_cast<Function *>(found);
}

#define HBLDV(_name) (hbl<decltype(hbldv_##_name)>("hbldv_" #_name))
#define HLIBV(_name) (hbl<decltype(ibv_##_name)>("hlibv_" #_name))

/** Waits for something with a deadline. @return Whether it came. */
template <typename Condition>
bool wait_until(Condition &&condition)
{
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) {
            return false;
        }
        usleep(20); /* see util::nap */
    }
    return true;
}

struct completion {
    bool as_requester;
    uint32_t qpn;
    uint32_t index;
    uint32_t tag;
    uint32_t size;
};

/** A card whose verbs device is open. */
class port_card : public own_card {
public:
    explicit port_card(unsigned index = 0, uint64_t ports = 0)
        : own_card(index), device(device_of(index)),
          context(open(device, fd(), ports))
    {
        EXPECT_NE(context, nullptr);
        pd = (context != nullptr) ? HLIBV(alloc_pd)(context) : nullptr;
        EXPECT_NE(pd, nullptr);
    }
    ~port_card() { close(); }
    port_card(const port_card &)            = delete;
    port_card &operator=(const port_card &) = delete;

    void close()
    {
        if (context != nullptr) {
            EXPECT_EQ(HLIBV(close_device)(context), 0);
        }
        context = nullptr;
    }

    static ibv_device *device_of(unsigned index)
    {
        ibv_device **list       = HLIBV(get_device_list)(nullptr);
        ibv_device *const found = list[index];
        HLIBV(free_device_list)(list);
        return found;
    }

    static ibv_context *open(ibv_device *of, int core_fd, uint64_t ports = 0)
    {
        hbldv_ucontext_attr attr{ports, core_fd};
        return HBLDV(open_device)(of, &attr);
    }

    [[nodiscard]] int set_up(uint32_t port, uint32_t queues = 2,
                             uint32_t entries = 128) const
    {
        hbldv_port_ex_attr attr{};
        attr.port_num       = port;
        attr.caps           = HBLDV_PORT_CAP_ADVANCED;
        attr.wq_arr_attr[0] = {queues, entries, HBLDV_MEM_HOST,
                               HBLDV_SWQE_GRAN_32B};
        return HBLDV(set_port_ex)(context, &attr);
    }

    [[nodiscard]] ibv_cq *create_cq(uint8_t port, int entries = 128) const
    {
        hbldv_cq_attr attr{port, HBLDV_CQ_TYPE_QP};
        return HBLDV(create_cq)(context, entries, nullptr, 0, &attr);
    }

    /** The next event, waited for; none: a type of -1. */
    [[nodiscard]] ibv_async_event event(int milliseconds = 20000) const
    {
        pollfd wanted{context->async_fd, POLLIN, 0};
        ibv_async_event found{};
        found.event_type = static_cast<ibv_event_type>(-1);
        if (poll(&wanted, 1, milliseconds) == 1) {
            EXPECT_EQ(HLIBV(get_async_event)(context, &found), 0);
            HLIBV(ack_async_event)(&found);
        }
        return found;
    }

    ibv_device *const device;
    ibv_context *context;
    ibv_pd *pd = nullptr;
};

inline bool is_gaudi3(const ibv_context *context)
{
    ibv_device_attr attr{};
    EXPECT_EQ(HLIBV(query_device)(const_cast<ibv_context *>(context), &attr),
              0);
    return attr.vendor_part_id >= 0x1060;
}

/** A queue pair of a port, with all that it needs. */
class port_user {
public:
    struct options {
        uint32_t entries    = 128;
        int cqes            = 128;
        uint8_t timeout     = 13;
        uint32_t local_key  = 0;
        uint32_t remote_key = 0;
        uint64_t caps       = 0;
    };

    port_user(port_card &of, uint8_t port, const options &as)
        : card_(of), port_(port), as_(as)
    {
        const int set_up = of.set_up(port, 2, as.entries);
        EXPECT_TRUE((set_up == 0) || (set_up == EPERM)) << set_up;
        for (unsigned i = 0; i < 2; ++i) {
            cqs_[i].verbs = of.create_cq(port, as.cqes);
            EXPECT_NE(cqs_[i].verbs, nullptr);
            EXPECT_EQ(HBLDV(query_cq)(cqs_[i].verbs, &cqs_[i].known), 0);
        }
        ibv_qp_init_attr made{};
        made.send_cq         = cqs_[0].verbs;
        made.recv_cq         = cqs_[1].verbs;
        made.qp_type         = IBV_QPT_RC;
        made.cap.max_send_wr = as.entries;
        qp                   = HLIBV(create_qp)(of.pd, &made);
        EXPECT_NE(qp, nullptr);
        EXPECT_EQ(to_init(), 0);
    }
    port_user(port_card &of, uint8_t port) : port_user(of, port, options{}) {}
    ~port_user() { destroy(); }
    port_user(const port_user &)            = delete;
    port_user &operator=(const port_user &) = delete;

    void destroy()
    {
        if ((qp != nullptr) && (card_.context != nullptr)) {
            EXPECT_EQ(HLIBV(destroy_qp)(qp), 0);
            if (fifo != nullptr) {
                EXPECT_EQ(HBLDV(destroy_usr_fifo)(fifo), 0);
            }
            EXPECT_EQ(HLIBV(destroy_cq)(cqs_[0].verbs), 0);
            EXPECT_EQ(HLIBV(destroy_cq)(cqs_[1].verbs), 0);
        }
        qp = nullptr;
    }

    int to_init()
    {
        ibv_qp_attr attr{};
        hbldv_qp_attr more{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = port_;
        more.wq_type  = HBLDV_WQ_WRITE;
        const int ret = HBLDV(modify_qp)(qp, &attr,
                                         IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                                             IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                                         &more);
        return ret;
    }

    int to_receive(uint32_t peer)
    {
        ibv_qp_attr attr{};
        hbldv_qp_attr more{};
        attr.qp_state    = IBV_QPS_RTR;
        attr.dest_qp_num = peer;
        attr.path_mtu    = static_cast<ibv_mtu>(shim::path_mtu_8192);
        more.local_key   = as_.local_key;
        more.caps        = as_.caps;
        return HBLDV(modify_qp)(qp, &attr,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC |
                                    IBV_QP_MIN_RNR_TIMER,
                                &more);
    }

    int to_send()
    {
        ibv_qp_attr attr{};
        hbldv_qp_attr more{};
        attr.qp_state   = IBV_QPS_RTS;
        attr.timeout    = as_.timeout;
        more.remote_key = as_.remote_key;
        more.caps       = as_.caps;
        return HBLDV(modify_qp)(qp, &attr,
                                IBV_QP_STATE | IBV_QP_TIMEOUT |
                                    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                                &more);
    }

    void connect(uint32_t peer)
    {
        EXPECT_EQ(to_receive(peer), 0);
        EXPECT_EQ(to_send(), 0);
        EXPECT_EQ(HBLDV(query_qp)(qp, &queues), 0);
        hbldv_usr_fifo_attr attr{};
        attr.port_num = port_;
        fifo          = HBLDV(create_usr_fifo)(card_.context, &attr);
        EXPECT_NE(fifo, nullptr);
    }

    [[nodiscard]] uint32_t qpn() const
    {
        hbldv_query_qp_attr attr{};
        EXPECT_EQ(HBLDV(query_qp)(qp, &attr), 0);
        return attr.qp_num;
    }

    /** State, and syndrome of the last error. */
    [[nodiscard]] std::pair<ibv_qp_state, unsigned> state() const
    {
        ibv_qp_attr attr{};
        ibv_qp_init_attr made{};
        EXPECT_EQ(HLIBV(query_qp)(qp, &attr, 0, &made), 0);
        return {attr.qp_state, attr.qp_access_flags};
    }

    using send_words    = std::array<uint32_t, 8>;
    using receive_words = std::array<uint32_t, 4>;

    /** Write a WQE of an RDMA write; `change` may spoil it. */
    template <typename Change>
    void write(uint64_t local, uint64_t remote, uint32_t size, uint32_t tag,
               Change &&change)
    {
        const uint32_t slot  = posted % as_.entries;
        const uint32_t index = (slot & 0xff) << 8;
        send_words send{2,
                        size,
                        static_cast<uint32_t>(local),
                        static_cast<uint32_t>(local >> 32),
                        static_cast<uint32_t>(remote),
                        static_cast<uint32_t>(remote >> 32),
                        tag,
                        2u << 30};
        receive_words receive{2 | index, 2u << 30, size, tag + 1000};
        send[0] |= is_gaudi3(card_.context) ? 0 : index;
        change(send, receive);
        std::memcpy(static_cast<char *>(queues.swq_cpu_addr) +
                        size_t{slot} * sizeof(send),
                    &send, sizeof(send));
        std::memcpy(static_cast<char *>(queues.rwq_cpu_addr) +
                        size_t{slot} * sizeof(receive),
                    &receive, sizeof(receive));
        ++posted;
    }
    void write(uint64_t local, uint64_t remote, uint32_t size, uint32_t tag = 0)
    {
        write(local, remote, size, tag, [](auto &, auto &) {});
    }

    [[nodiscard]] uint64_t doorbell() const
    {
        const uint32_t pi =
            is_gaudi3(card_.context) ? posted & 0x3fffff : posted % as_.entries;
        return (uint64_t{queues.qp_num} << 32) | pi;
    }

    void ring(uint64_t value) const
    {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        *reinterpret_cast<volatile uint64_t *>(
            static_cast<char *>(fifo->regs_cpu_addr) + fifo->regs_offset) =
            value;
    }
    void ring() const { ring(doorbell()); }

    [[nodiscard]] uint32_t fifo_ci() const
    {
        return *static_cast<volatile uint32_t *>(fifo->ci_cpu_addr);
    }

    /** The next completion of the requester, or the responder; none: not in
     *  time. @param announce  Have the card know that it is consumed. */
    std::optional<completion> next(bool as_requester, bool announce = true)
    {
        queue &from = cqs_[as_requester ? 0 : 1];
        const auto *entry =
            static_cast<volatile uint32_t *>(from.known.mem_cpu_addr) +
            size_t{4} *
                (from.consumed % static_cast<uint32_t>(from.verbs->cqe));
        const auto *pi =
            static_cast<volatile uint32_t *>(from.known.pi_cpu_addr);
        if (!wait_until([&] { return *pi != from.consumed; })) {
            return std::nullopt;
        }
        std::atomic_thread_fence(std::memory_order_acquire);
        const uint32_t head = entry[0];
        EXPECT_NE(head >> 31, 0u) << "it is not valid";
        const completion found{((head >> 24) & 1) != 0, head & 0xffffff,
                               entry[1], entry[2], entry[3]};
        ++from.consumed;
        if (announce) {
            const uint64_t low = from.known.cq_num;
            *reinterpret_cast<volatile uint64_t *>(
                static_cast<char *>(from.known.regs_cpu_addr) +
                from.known.regs_offset) =
                is_gaudi3(card_.context)
                    ? from.consumed
                    : (uint64_t{from.consumed} << 32) | low;
        }
        return found;
    }

    ibv_qp *qp           = nullptr;
    hbldv_usr_fifo *fifo = nullptr;
    hbldv_query_qp_attr queues{};
    uint32_t posted = 0;

private:
    struct queue {
        ibv_cq *verbs = nullptr;
        hbldv_query_cq_attr known{};
        uint32_t consumed = 0;
    };

    port_card &card_;
    const uint8_t port_;
    const options as_;
    std::array<queue, 2> cqs_{};
};

/** Cards 0 and 3 of an HLS-2, whose ports 1 are wired to each other, connected
 *  there. */
struct wired_pair {
    explicit wired_pair(const port_user::options &here_as  = {},
                        const port_user::options &there_as = {})
        : here(card, 1, here_as), there(other, 1, there_as)
    {
        here.connect(there.qpn());
        there.connect(here.qpn());
    }

    port_card card{0};
    port_card other{3};
    port_user here;
    port_user there;
    const uint64_t source = card.allocate_mapped(8 * mebi);
    const uint64_t target = other.allocate_mapped(8 * mebi);
};

} // namespace gaudi::test
