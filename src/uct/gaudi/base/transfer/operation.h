/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The record of an operation, and the lists of them: which are outstanding, in
 * what order they were started, and which completions have to be called.
 *
 * Records are made in blocks as they are needed, up to a limit, and used again.
 * The planner says how the bytes move, the engine moves them.
 */
#pragma once

#include "uct/gaudi/base/transfer/counts.h"
#include "uct/gaudi/base/transfer/lane.h"

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
    unsigned late;   /* short operations that outlived their call */
    unsigned slow;   /* of those one after the other that are asked for anew */
    bool has_waited; /* a short operation, for resources */
};

/** Lets go of what an operation relies on. */
struct let_go {
    void operator()(host_region *held) const { held->put(); }
    void operator()(device_memory *held) const { held->put(); }
    void operator()(lane *held) const { --held->users; }
    void operator()(remote_memory *held) const { held->release(); }
};
using held_registration = std::unique_ptr<host_region, let_go>;
using held_device       = std::unique_ptr<device_memory, let_go>;
using held_remote       = std::unique_ptr<remote_memory, let_go>;
using held_lane         = std::unique_ptr<lane, let_go>;

/** How bytes get from one side of a copy to the other. */
enum class way : uint8_t {
    direct,   /**< a lane copies between two addresses that it reaches */
    upload,   /**< from the host to a chunk, which a lane fetches */
    download, /**< a lane fills a chunk, which goes to the host */
    relay     /**< a lane fills a chunk, which another lane fetches */
};

enum class operation_kind : uint8_t {
    copy,
    unpack, /**< a callback takes the bytes */
    call,   /**< a copy whose caller waits for it */
    left,   /**< whose caller waited, and will ask for it anew */
    flush_domain,
    flush_all
};

struct operation {
    ucs_list_link_t in_domain; /* self-linked when it has none */
    ucs_list_link_t in_all;
    ucs_list_link_t in_queue; /* to be submitted, or ended */

    /* What was asked for. */
    operation_kind what;
    flush_domain *domain;
    uct_completion_t *completion;
    uct_unpack_callback_t unpack;
    void *unpack_arg;
    uint64_t sequence;

    /* How far it is. */
    ucs_status_t status;
    unsigned in_flight; /* jobs */
    bool has_ended;
    bool is_late; /* its call has returned */
    size_t total; /* bytes, */
    size_t left;  /* of which these are to be moved yet */

    /* The plan. */
    way how;
    mover moved_by;
    uint64_t dst; /* as the way has it */
    uint64_t src;
    work_queue *queue;              /* that moves it, or the first */
    work_queue *relay;              /* where a relay goes on */
    lane *through;                  /* whose chunks it goes through */
    chunk_ptr chunk;                /* filled for an upload; bcopy: the bytes */
    held_registration registration; /* of host memory here, or nullptr */
    held_device device[2]; /* memory here, so that it is not given out again
                              while a card copies; or nullptr */
    held_remote remote;    /* memory of another process, or nullptr */
    held_lane by;          /* of that process, or of ports; or nullptr */

    /** Have a queue copy between what it reaches. */
    void go(way that, work_queue &by_queue, uint64_t to, uint64_t from)
    {
        queue = &by_queue;
        how   = that;
        dst   = to;
        src   = from;
    }

    /** The ports that it uses, or nullptr. */
    [[nodiscard]] lane *ports() const
    {
        return (moved_by == mover::ports) ? by.get() : nullptr;
    }

    /** So many bytes are under way, or there. */
    void advance(size_t length)
    {
        left -= length;
        dst += length;
        src += length;
    }
};

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
    [[nodiscard]] operation *take()
    {
        return has_free() ? ucs_list_extract_head(&free_, operation, in_queue)
                          : nullptr;
    }
    /** The same for a call, of which there is one at a time. */
    [[nodiscard]] operation &take_call() { return call_; }
    void put_back(operation &op);

    /** Count an operation as outstanding.
     *  @param domain  nullptr: of none. */
    void start(operation &op, flush_domain *domain, operation_kind what,
               uct_completion_t *completion);

    /** What was started has to have landed before anything else is. */
    void fence() { fence_ = last_sequence_; }

    /** Whether it has, where there was a fence. */
    [[nodiscard]] bool is_past_fence() const;

    /** What failed of a domain before the last fence, and was not heard of. */
    [[nodiscard]] ucs_status_t fenced_failure(const flush_domain &domain) const
    {
        return (domain.unheard_sequence <= fence_) ? domain.unheard : UCS_OK;
    }

    /** End an operation of which nothing is left: by an error, or because its
     *  last job has ended. It leaves the list in which it waits. */
    void end_if_done(operation &op);

    /** End all of a list with an error, except what cards still work on. */
    void cancel(ucs_list_link_t &waiting);

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
     *  itself. With `again` its bytes and its failure are nobody's. */
    static void leave(operation &op, bool again)
    {
        op.what    = again ? operation_kind::left : op.what;
        op.is_late = true;
        ++op.domain->late;
        op.domain->slow += again ? 1 : 0;
    }

    /** Call the completions of what has ended. @return How many. */
    unsigned complete_ended();

    /** Leave everything as it is, and never give it back: a card still uses
     *  it. */
    void disown();

private:
    [[nodiscard]] bool make_free();
    void end(operation &op);
    void fail(flush_domain &domain, uint64_t sequence, ucs_status_t status);
    void retire(operation &op);
    void complete(operation &op);
    void end_reached_flush(ucs_list_link_t &list, operation_kind what);

    const unsigned limit_;
    copy_counts &counts_;
    operation call_{};
    std::vector<std::unique_ptr<operation[]>> blocks_;
    unsigned made_ = 0; /* operations in them */
    ucs_list_link_t free_;
    ucs_list_link_t all_;    /* outstanding, oldest first */
    ucs_list_link_t ended_;  /* with a completion to call */
    ucs_list_link_t failed_; /* domains */
    uint64_t last_sequence_ = 0;
    uint64_t fence_         = 0; /* last sequence number before the fence */
};

} // namespace gaudi::base
