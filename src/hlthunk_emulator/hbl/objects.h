/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Verbs' objects as libhbl makes them: what programs see of them, and the
 * numbers by which the emulator knows them.
 */
#pragma once

#include "hlthunk_emulator/ports/calls.h"
#include "hlthunk_shim/abi/ports.h"

#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>

#include <fcntl.h>
#include <unistd.h>

#define HBL_PUBLIC extern "C" __attribute__((visibility("default")))

/* Plain verbs have names of their own in a variant of the library; HCL and
 * perftest take them with another beginning. */
#ifdef HBL_PLAIN_NAMES
#define HBL_VERB(_name) ibv_##_name
#else
#define HBL_VERB(_name) hlibv_##_name
#endif

/* The header has macros of these names, which call other functions. */
#undef ibv_query_port
#undef ibv_reg_mr

namespace gaudi::hbl {

struct device {
    ibv_device verbs;
    unsigned card;
};

/**
 * The CQs and QPs of a context whose events are told. Those that nobody has
 * read go with their object (ib_uverbs_release_uevent of Linux), and what has
 * been read must be acknowledged before its object goes (ibv_cmd_destroy_qp and
 * ibv_cmd_destroy_cq of rdma-core). Any thread.
 */
class event_sources {
public:
    /** @return What names the object in events; never twice the same. */
    uint64_t add(void *object);
    /** Returns when what was read of it is acknowledged. */
    void remove(uint64_t name);
    /** @return The object, which stays until acknowledge(); null: it is gone.
     */
    void *read(uint64_t name);
    void acknowledge(uint64_t name);

private:
    struct source {
        void *object;
        unsigned unacknowledged;
    };

    std::mutex lock_;
    std::condition_variable acknowledged_;
    std::map<uint64_t, source> known_;
    uint64_t last_{};
};

/** `verbs` is the end of it, as verbs_get_ctx() has it. */
struct context {
    verbs_context verbs;
    int id;
    int events; /**< where the emulator writes them */
    event_sources sources;
};

struct completion_queue {
    ibv_cq verbs;
    hbldv_query_cq_attr known;
    int id;
    uint64_t name; /**< in events */
};

struct queue_pair {
    ibv_qp verbs;
    int id;
    uint64_t name; /**< in events */
};

struct doorbell_fifo {
    hbldv_usr_fifo verbs;
    ibv_context *context;
    int id;
};

/** Verbs' objects are the first or the last member of ours. */
inline context &own(ibv_context *of)
{
    return *reinterpret_cast<context *>(reinterpret_cast<char *>(of) -
                                        offsetof(verbs_context, context));
}
inline completion_queue &own(ibv_cq *of)
{
    return *reinterpret_cast<completion_queue *>(of);
}
inline queue_pair &own(ibv_qp *of)
{
    return *reinterpret_cast<queue_pair *>(of);
}

/** The emulator of this process. */
inline const emu::port_calls &calls()
{
    return *hlthunk_emu_ports();
}

/** What verbs return: 0, or an errno that is in errno, too. */
inline int result(int ret)
{
    if (ret >= 0) {
        return 0;
    }
    errno = -ret;
    return errno;
}

/** The same of what gives a pointer. */
template <typename T>
T *no_object(int error)
{
    errno = error;
    return nullptr;
}

/** A function that this library does not have says so, and fails. */
int not_supported(const char *function);

/** As ibv_query_port, of the structure's first bytes. */
int query_port_of(ibv_context *context, uint8_t port, ibv_port_attr *attr,
                  size_t length);

/** As hbldv_modify_qp. */
int modify(ibv_qp *qp, const ibv_qp_attr &attr, int mask,
           const hbldv_qp_attr &more);

} // namespace gaudi::hbl
