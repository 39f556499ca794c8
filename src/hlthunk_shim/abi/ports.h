/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * libhbl's C ABI: what verbs of a card's ports have beyond those of libibverbs,
 * whose structures come from its own header.
 *
 * Facts (names, values, member order) are those of `providers/hbl/hbldv.h` of
 * linux-rdma/rdma-core at c4b804673. HabanaAI/HCL has a newer `hbldv.h`: there
 * reserved members have got names and some structures another end, which is
 * said where it matters. Values that nothing here uses are left out. Formats of
 * what is written to mapped memory (WQEs, doorbells, CQEs) are not here: who
 * writes them and who reads them each has its own.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

extern "C" {

enum hbldv_qp_caps : uint64_t {
    HBLDV_QP_CAP_LOOPBACK    = 0x1,
    HBLDV_QP_CAP_CONG_CTRL   = 0x2,
    HBLDV_QP_CAP_COMPRESSION = 0x4,
    HBLDV_QP_CAP_ENCAP       = 0x10
};

enum hbldv_port_ex_caps : uint64_t { HBLDV_PORT_CAP_ADVANCED = 0x1 };

enum hbldv_mem_id : uint32_t { HBLDV_MEM_HOST = 1, HBLDV_MEM_DEVICE = 2 };

enum hbldv_wq_array_type : uint32_t {
    HBLDV_WQ_ARRAY_TYPE_GENERIC = 0,
    HBLDV_WQ_ARRAY_TYPE_MAX     = 5
};

/** Size of a send WQE. */
enum hbldv_swq_granularity : uint32_t {
    HBLDV_SWQE_GRAN_32B = 0,
    HBLDV_SWQE_GRAN_64B = 1
};

/** Doorbells. */
enum hbldv_usr_fifo_type : uint32_t { HBLDV_USR_FIFO_TYPE_DB = 0 };

enum hbldv_qp_wq_types : uint32_t { HBLDV_WQ_WRITE = 0x1 };

enum hbldv_cq_type : uint32_t { HBLDV_CQ_TYPE_QP = 0 };

struct hbldv_ucontext_attr {
    uint64_t ports_mask; /**< Bit N is port N, from 1 on; 0 for all */
    int core_fd;         /**< The card's compute node, open */
};

struct hbldv_wq_array_attr {
    uint32_t max_num_of_wqs;        /**< One is the driver's own */
    uint32_t max_num_of_wqes_in_wq; /**< A power of two */
    hbldv_mem_id mem_id;
    hbldv_swq_granularity swq_granularity;
};

struct hbldv_port_ex_attr {
    hbldv_wq_array_attr wq_arr_attr[HBLDV_WQ_ARRAY_TYPE_MAX];
    uint64_t caps; /**< Of hbldv_port_ex_caps */
    uint32_t qp_wq_bp_offs[16];
    uint32_t reserved0[2];
    uint32_t port_num; /**< From 1 on */
    uint8_t reserved1;
};

struct hbldv_query_port_attr {
    uint32_t max_num_of_qps;
    uint32_t num_allocated_qps;
    uint32_t max_allocated_qp_num;
    uint32_t max_cq_size; /**< Of its buffer, bytes */
    uint32_t reserved[5];
    uint8_t advanced;
    uint8_t max_num_of_cqs;
    uint8_t max_num_of_usr_fifos;
    uint8_t max_num_of_encaps;
    uint8_t nic_macro_idx;
    uint8_t nic_phys_port_idx;
};

/** Has room for the pointer that HCL's has at the end (`qp_to_migrate`), which
 *  is of no use here: rdma-core's ends before it. */
struct hbldv_qp_attr {
    uint64_t caps;           /**< Of hbldv_qp_caps */
    uint32_t local_key;      /**< RTR: what peers have to name */
    uint32_t remote_key;     /**< RTS: the peer's local_key */
    uint32_t congestion_wnd; /**< RTS */
    uint32_t reserved0;
    uint32_t dest_wq_size;                /**< RTS of rendezvous */
    hbldv_qp_wq_types wq_type;            /**< INIT */
    hbldv_swq_granularity wq_granularity; /**< INIT */
    uint8_t priority;                     /**< RTR and RTS */
    uint8_t reserved1;
    uint8_t reserved2;
    uint8_t encap_num; /**< RTR and RTS */
    uint8_t reserved3;
    void *qp_to_migrate;
};

struct hbldv_query_qp_attr {
    uint32_t qp_num; /**< The card's; ibv_qp::qp_num is not */
    void *swq_cpu_addr;
    void *rwq_cpu_addr;
};

struct hbldv_usr_fifo_attr {
    uint32_t port_num; /**< From 1 on */
    uint32_t reserved0;
    uint32_t reserved1;
    uint32_t usr_fifo_num_hint;
    hbldv_usr_fifo_type usr_fifo_type;
    uint8_t reserved2;
};

struct hbldv_usr_fifo {
    void *ci_cpu_addr;
    void *regs_cpu_addr;
    uint32_t regs_offset; /**< bytes */
    uint32_t usr_fifo_num;
    uint32_t size;      /**< bytes */
    uint32_t bp_thresh; /**< As the driver has set it */
};

struct hbldv_cq_attr {
    uint8_t port_num; /**< From 1 on */
    hbldv_cq_type cq_type;
};

struct hbldv_query_cq_attr {
    ibv_cq *ibvcq;
    void *mem_cpu_addr;
    void *pi_cpu_addr;
    void *regs_cpu_addr;
    uint32_t cq_size; /**< Of what is mapped, bytes */
    uint32_t cq_num;
    uint32_t regs_offset; /**< bytes */
    hbldv_cq_type cq_type;
};

struct hbldv_encap_attr; /**< not used here */
struct hbldv_encap;

/** HCL's, as perftest has it. That of rdma-core is another one: caps, then
 *  `uint64_t ports_mask` by verbs' numbers, 16 bytes. A caller that does not
 *  know its library gives room for both. */
struct hbldv_device_attr {
    uint64_t caps;
    uint8_t num_ports;       /**< of the context */
    uint64_t ext_ports_mask; /**< by verbs' numbers, from 1 on */
    uint64_t hw_ports_mask;  /**< by the hardware's, from 0 on */
};

/* Those that return int give 0 or a positive errno, and those that return a
 * pointer nullptr and errno. */

bool hbldv_is_supported(ibv_device *device);
ibv_context *hbldv_open_device(ibv_device *device, hbldv_ucontext_attr *attr);
int hbldv_query_device(ibv_context *context, hbldv_device_attr *attr);
int hbldv_set_port_ex(ibv_context *context, hbldv_port_ex_attr *attr);
int hbldv_query_port(ibv_context *context, uint32_t port_num,
                     hbldv_query_port_attr *attr);
ibv_cq *hbldv_create_cq(ibv_context *context, int cqe,
                        ibv_comp_channel *channel, int comp_vector,
                        hbldv_cq_attr *attr);
int hbldv_query_cq(ibv_cq *cq, hbldv_query_cq_attr *attr);
int hbldv_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask,
                    hbldv_qp_attr *hbl_attr);
int hbldv_query_qp(ibv_qp *qp, hbldv_query_qp_attr *attr);
hbldv_usr_fifo *hbldv_create_usr_fifo(ibv_context *context,
                                      hbldv_usr_fifo_attr *attr);
int hbldv_destroy_usr_fifo(hbldv_usr_fifo *fifo);
hbldv_encap *hbldv_create_encap(ibv_context *context, hbldv_encap_attr *attr);
int hbldv_destroy_encap(hbldv_encap *encap);

/* Of libibverbs, which has it in no header that programs get. The type is 1 for
 * RoCE v2, else 0. */
int ibv_query_gid_type(ibv_context *context, uint8_t port_num, unsigned index,
                       int *type);

} /* extern "C" */

static_assert(sizeof(hbldv_ucontext_attr) == 16);
static_assert(sizeof(hbldv_wq_array_attr) == 16);
static_assert(sizeof(hbldv_port_ex_attr) == 168);
static_assert(offsetof(hbldv_port_ex_attr, port_num) == 160);
static_assert(sizeof(hbldv_query_port_attr) == 44);
static_assert(sizeof(hbldv_qp_attr) == 56);
static_assert(offsetof(hbldv_qp_attr, priority) == 36);
static_assert(sizeof(hbldv_query_qp_attr) == 24);
static_assert(sizeof(hbldv_usr_fifo_attr) == 24);
static_assert(sizeof(hbldv_usr_fifo) == 32);
static_assert(sizeof(hbldv_cq_attr) == 8);
static_assert(sizeof(hbldv_query_cq_attr) == 48);
static_assert(sizeof(hbldv_device_attr) == 32);

namespace gaudi::shim {

/* Value of ibv_qp_attr::path_mtu that verbs do not have (HBL_IB_MTU_8192). */
inline constexpr int path_mtu_8192 = 6;

} // namespace gaudi::shim
