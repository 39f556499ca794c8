/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Records of operations: which are outstanding, in what order they were
 * started, what waits behind a fence, and which completions have to be called.
 *
 * Records are made in blocks as they are needed, up to a limit, and used again.
 * How bytes move, nobody here knows; what ends an operation is told.
 */
#pragma once

#include "uct/gaudi/base/transfer/planned_copy.h"

#include <memory>
#include <vector>

namespace gaudi::base {

/** Whose operations are flushed together: one of these per endpoint. */
struct flush_domain {
    ucs_list_link_t operations; /* outstanding, oldest first */
    /* Of the first operation that failed and had no completion to say so: bytes
     * are missing, and only the endpoint can tell. */
    ucs_status_t failure;
    ucs_list_link_t in_failed; /* self-linked, or until that is told */
    /* Of the newest that failed and whose completion has not been called: it
     * may wait for the message that tells the peer of the bytes (UCP's
     * rendezvous by put, ucp_proto_rndv_put_common_fenced_atp_send, does not
     * look at puts). */
    ucs_status_t unheard;
    uint64_t unheard_sequence;
    const uct_completion_t *unheard_by;
    unsigned late; /* short operations that outlived their call */
};

/** What all kinds of transfer have: jobs under way, and how they went. */
struct transfer {
    unsigned in_flight  = 0;
    ucs_status_t status = UCS_OK;
    bool is_operation   = false; /* an `operation`, else a synchronous copy */
    const planned_copy *plan = nullptr;
};

enum class operation_kind { copy, unpack, flush_domain, flush_all };

struct operation : transfer {
    ucs_list_link_t in_domain; /* self-linked when it has none */
    ucs_list_link_t in_all;
    ucs_list_link_t in_queue; /* to be submitted, or ended */
    operation_kind what;
    bool has_ended;
    bool is_late; /* its call has returned */
    uint64_t sequence;
    uint64_t after; /* sequence number that must have completed first */
    flush_domain *domain;
    planned_copy copy;
    uct_completion_t *completion;
    uct_unpack_callback_t unpack;
    void *unpack_arg;
};

/** Submit a job. @return As dma_queue::submit. */
[[nodiscard]] int submit(const work_queue &queue, dma_job &job, uint64_t dst,
                         uint64_t src);

/** Where a get over ports has failed they are closed: nobody else tells how the
 *  owner's are. */
inline void note_ports(const dma_job &job, ucs_status_t status)
{
    if (ucs_unlikely((status == UCS_ERR_IO_ERROR) ||
                     (status == UCS_ERR_TIMED_OUT)) &&
        (job.queue->link != work_queue::no_link)) {
        job.owner->plan->by_owner->end(false);
    }
}

class operations {
public:
    /** @param limit   Most records.
     *  @param counts  Of what ends well. */
    operations(unsigned limit, copy_counts &counts);

    /** Whether a record can be had; makes more when none is free. */
    [[nodiscard]] bool has_free()
    {
        return ucs_likely(!ucs_list_is_empty(&free_)) || make_free();
    }

    /** Take a record, to be filled and started, or put back. It holds nothing.
     *  @return nullptr when there is none. */
    [[nodiscard]] operation *take();
    void put_back(operation &op);

    /** Count an operation as outstanding, behind the last fence. */
    void start(operation &op, flush_domain *domain, operation_kind what,
               uct_completion_t *completion);

    /** What is added from now on comes after what was added before. */
    void fence() { fence_ = last_sequence_; }

    /** Whether what was added before the last fence has landed. */
    [[nodiscard]] bool is_past_fence()
    {
        return ucs_list_is_empty(&all_) || has_landed(fence_);
    }

    /** What failed of a domain before the last fence, and was not heard of. */
    [[nodiscard]] ucs_status_t fenced_failure(const flush_domain &domain) const
    {
        return (domain.unheard_sequence <= fence_) ? domain.unheard : UCS_OK;
    }

    /** Whether an operation may begin. If not it is kept, for @ref take_ready.
     */
    [[nodiscard]] bool may_begin(operation &op);

    /** The next operation that no fence keeps back any more, or nullptr. */
    [[nodiscard]] operation *take_ready();

    /** End an operation of which nothing is left: by an error, or because its
     *  last job has ended. It leaves the list in which it waits. */
    void end_if_done(operation &op);

    /** End all of a list with an error, except what cards still work on. */
    void cancel(ucs_list_link_t &waiting);
    void cancel_fenced() { cancel(fenced_); }

    /** Give up those of an endpoint. */
    static void open(flush_domain &domain);
    void cancel(flush_domain &domain, ucs_status_t status);
    void close(flush_domain &domain);

    /** Nothing outstanding, in the domain or at all. */
    [[nodiscard]] bool is_flushed(flush_domain *domain)
    {
        return ucs_list_is_empty((domain != nullptr) ? &domain->operations
                                                     : &all_);
    }
    [[nodiscard]] bool is_idle()
    {
        return ucs_list_is_empty(&all_) && ucs_list_is_empty(&ended_);
    }
    [[nodiscard]] bool any_ended() { return !ucs_list_is_empty(&ended_); }

    /** How one has failed whose completion is still to be called. */
    [[nodiscard]] ucs_status_t ended_failure() const;

    /** A domain that has got a failure, each once; nullptr: none. */
    [[nodiscard]] flush_domain *take_failed();

    /** Take an operation that has ended, and that has no completion, out of
     *  what is outstanding. @return How it has ended. */
    ucs_status_t take_ended(operation &op);

    /** Leave an operation without a completion, which is outstanding, to end by
     *  itself. */
    static void leave(operation &op)
    {
        op.is_late = true;
        ++op.domain->late;
    }

    /** Call the completions of what has ended. @return How many. */
    unsigned complete_ended();

    /** Leave everything as it is, and never give it back: a card still uses
     *  it. */
    void disown();

private:
    [[nodiscard]] bool make_free();
    [[nodiscard]] bool has_landed(uint64_t sequence);
    void end(operation &op);
    void fail(flush_domain &domain, uint64_t sequence, ucs_status_t status);
    void retire(operation &op);
    void complete(operation &op);
    void end_reached_flush(ucs_list_link_t &list, operation_kind what);

    const unsigned limit_;
    copy_counts &counts_;
    std::vector<std::unique_ptr<operation[]>> blocks_;
    unsigned made_ = 0; /* operations in them */
    ucs_list_link_t free_;
    ucs_list_link_t all_;    /* outstanding, oldest first */
    ucs_list_link_t fenced_; /* behind a fence, oldest first */
    ucs_list_link_t ended_;  /* with a completion to call */
    ucs_list_link_t failed_; /* domains */
    uint64_t last_sequence_ = 0;
    uint64_t fence_         = 0; /* last sequence number before the fence */
};

} // namespace gaudi::base
