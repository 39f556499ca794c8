/**
 * Copies between host and device memory. Of memory of this process a pointer
 * tells all; one side of a copy may be memory of another process.
 *
 * An engine serves one interface, on one thread at a time (UCT's rule). It
 * finds out what each address is, maps or stages host memory, keeps the card's
 * queues filled, and calls completions from progress() only. Device memory is
 * reached by DMA alone; the CPU touches host memory, and nothing but host
 * memory.
 *
 * Who moves the bytes to (put) or from (get) memory of another process:
 *
 * - device to or from device: the card of the memory here, at once;
 * - its device memory, host memory here: the engine's card, at once where it
 *   can map the host memory, else through staging memory. Synchronous copies of
 *   a few bytes always go through that;
 * - its host memory, device memory here: the card, to or from staging memory,
 *   and the kernel from or to there;
 * - host to or from host: the kernel, a piece per progress().
 *
 * Long copies go in pieces, and those that wait take turns; short ones have a
 * queue to themselves, where the card has one to spare. So none waits for
 * another one to end that is much longer. No order of operations is kept
 * but by fences.
 *
 * Staging memory is fixed at creation; records of operations are made as they
 * are needed, up to a limit: UCP's protocols for device memory expect that zero
 * copy always finds one. Running out of either is UCS_ERR_NO_RESOURCE.
 *
 * In a forked child an inherited engine copies nothing (UCS_ERR_UNSUPPORTED),
 * makes no progress, and lets nothing go: what it has is the parent's.
 */
#pragma once

#include "uct/gaudi/base/memory/device_table.h"
#include "uct/gaudi/base/transfer/channel.h"
#include "uct/gaudi/base/transfer/remote_memory.h"
#include "uct/gaudi/base/transfer/wakeup.h"
#include "util/process.h"

#include <memory>
#include <vector>

namespace gaudi::base {

/** Sizes of a transfer engine. */
struct transfer_options {
    size_t chunk_bytes = 65536;   /**< of staging memory, and longest bcopy */
    unsigned chunks    = 16;      /**< per card */
    unsigned max_ops   = 65536;   /**< operations outstanding */
    size_t piece_bytes = 1 << 20; /**< longest DMA job, and longest copy of the
                                       kernel in one progress() */
    unsigned pieces    = 4; /**< long ones in flight per card and direction */
    size_t short_bytes = 65536; /**< longest copy that never waits for pieces
                                     of others, if the card can do that */
    bool remember_host = false; /**< put host memory that nobody registered into
                                     the registration cache, if there is one,
                                     when device memory of another process is
                                     copied to or from it */
};

/** What all kinds of transfer have: jobs under way, and how they went. */
struct transfer {
    unsigned in_flight  = 0;
    ucs_status_t status = UCS_OK;
    bool is_operation   = false; /* an `operation`, else a synchronous copy */
};

/** The rest of a copy. */
struct copy_cursor {
    channel *way   = nullptr; /* nullptr: nothing for a card to do */
    dma_lane *lane = nullptr; /* of it */
    bool staged    = false;
    bool upload    = false;   /* staged: into the card, else out of it */
    uint64_t dst   = 0;       /* device address; unused for staged hosts */
    uint64_t src   = 0;       /* likewise */
    char *host     = nullptr; /* staged, or without a card: the host side, */
    const util::process_memory *process =
        nullptr;                     /* in another process; without a
                                  card the other side's, */
    uint64_t there        = 0;       /* and the address there */
    size_t left           = 0;       /* bytes not submitted */
    host_memory *held     = nullptr; /* registration that the copy relies on */
    remote_memory *remote = nullptr; /* held, too */
    dma_lane *onward = nullptr; /* staged: of the card that the bytes are for */
    uint64_t target  = 0;       /* and their device address there */
    int filled       = -1;      /* chunk that waits for room in the queue */
};

/** Whose operations are flushed together: one of these per endpoint. */
struct flush_domain {
    ucs_list_link_t operations; /* outstanding, oldest first */
};

class transfer_engine {
public:
    /** @param home  Card of the interface; others get a channel on first use.
     */
    [[nodiscard]] static ucs_status_t
    create(card &home, const transfer_options &options,
           std::unique_ptr<transfer_engine> &engine_p);

    /** Of a process without a card: for host memory, here and elsewhere. Device
     *  memory is an error, UCS_ERR_NO_DEVICE. */
    [[nodiscard]] static ucs_status_t
    create(const transfer_options &options,
           std::unique_ptr<transfer_engine> &engine_p);

    /** Waits for jobs that cards still run; completes the rest as canceled. */
    ~transfer_engine();

    /**
     * Copy now. Calls no completion of other operations.
     *
     * Behind a fence it waits for what was started before the fence: UCP cannot
     * try its short operations again.
     *
     * @return UCS_OK when the bytes are there; else an error, which was logged:
     *         for memory of another process UCS_ERR_ENDPOINT_TIMEOUT when that
     *         is gone, UCS_ERR_UNREACHABLE when we may not touch its memory,
     *         UCS_ERR_INVALID_ADDR when it is not there, and what @ref
     *         remote_memory says.
     */
    [[nodiscard]] ucs_status_t copy(const side &dst, const side &src,
                                    size_t length);

    /**
     * Start a copy.
     *
     * @param completion  Called from progress, also for a failure; may be NULL.
     * @return UCS_INPROGRESS, or UCS_ERR_NO_RESOURCE, or an error, which was
     *         logged; on an error nothing was started and nothing is called.
     *         The completion gets the errors of @ref copy.
     */
    [[nodiscard]] ucs_status_t start(flush_domain &domain, const side &dst,
                                     const side &src, size_t length,
                                     uct_completion_t *completion);

    /**
     * Let a callback write the bytes, and start their copy.
     *
     * The bytes are there on return when the target is host memory.
     *
     * @return Bytes, or a negative status as for @ref start.
     */
    [[nodiscard]] ssize_t start_packed(flush_domain &domain, const side &dst,
                                       uct_pack_callback_t pack, void *arg);

    /**
     * Have an operation that cannot be done end from progress. For errors that
     * only a program's surroundings are to blame for: the new protocols of UCP
     * 1.13 end the process when a get fails at once.
     *
     * @return UCS_INPROGRESS, UCS_ERR_NO_RESOURCE, UCS_ERR_UNSUPPORTED as for
     *         @ref start.
     */
    [[nodiscard]] ucs_status_t fail_later(flush_domain &domain,
                                          ucs_status_t why,
                                          uct_completion_t *completion);

    /**
     * Start a copy whose bytes a callback takes, from progress.
     *
     * With memcpy as the callback, a device address as `arg` is the target of
     * the copy itself: UCP passes memcpy and the user's buffer.
     *
     * @return As for @ref start; UCS_OK when the source is host memory, whose
     *         bytes the callback has taken then.
     */
    [[nodiscard]] ucs_status_t start_unpacked(flush_domain &domain,
                                              const side &src, size_t length,
                                              uct_unpack_callback_t unpack,
                                              void *arg,
                                              uct_completion_t *completion);

    /**
     * Give up the operations of an endpoint. They complete from progress with
     * this status, or, if they had ended before, as they ended; what a card is
     * copying right now is waited for.
     */
    void cancel(flush_domain &domain, ucs_status_t status);

    /**
     * Wait for what was started.
     *
     * @param domain      Whose operations; nullptr for all.
     * @param completion  May be NULL, then call again until UCS_OK.
     * @return UCS_OK when there is nothing; UCS_INPROGRESS; or
     *         UCS_ERR_NO_RESOURCE when a completion cannot be kept.
     */
    [[nodiscard]] ucs_status_t flush(flush_domain *domain,
                                     uct_completion_t *completion);

    /** What is started from now on comes after what was started before. */
    void fence();

    /** Whether what was started before the last fence has ended. */
    [[nodiscard]] bool is_past_fence() { return has_landed(fence_); }

    /** Whether @ref progress would have nothing to do. Costs two loads. */
    [[nodiscard]] bool is_idle()
    {
        return ucs_list_is_empty(&all_) && ucs_list_is_empty(&ended_);
    }

    /** Collect ended jobs, submit more, call completions. @return How many. */
    unsigned progress();

    /**
     * The file descriptor of @ref arm, owned by the engine.
     *
     * @return UCS_ERR_IO_ERROR without one, which was logged.
     */
    [[nodiscard]] ucs_status_t event_fd(int &fd_p);

    /**
     * Ask for an event when @ref progress has something to do.
     *
     * @return UCS_OK: the file descriptor becomes readable then. UCS_ERR_BUSY:
     *         there is something to do now, nothing was armed.
     */
    [[nodiscard]] ucs_status_t arm();

    /** Whether any kind of operation could be started now. */
    [[nodiscard]] bool has_resources();

    /** Prepare the domain of a new endpoint. */
    static void open(flush_domain &domain);

    /** Let go of the domain of an endpoint that is destroyed; its operations
     *  still complete. */
    void close(flush_domain &domain);

private:
    enum class kind { copy, unpack, flush_domain, flush_all };

    struct operation {
        transfer work; /* first: a pointer to it is one to the operation */
        ucs_list_link_t in_domain; /* self-linked when it has none */
        ucs_list_link_t in_all;
        ucs_list_link_t in_queue; /* to be submitted, or ended */
        kind what;
        bool has_ended;
        uint64_t sequence;
        uint64_t after; /* sequence number that must have completed first */
        flush_domain *domain;
        copy_cursor cursor;
        uct_completion_t *completion;
        uct_unpack_callback_t unpack;
        void *unpack_arg;
        int chunk; /* bcopy: where the bytes are */
        size_t length;
    };

    /* Staging chunks that only synchronous copies may take, so that they always
     * get on: two, to fill one while the other is on its way. */
    static constexpr size_t reserved_chunks = 2;

    explicit transfer_engine(const transfer_options &options);

    [[nodiscard]] bool is_inherited() const
    {
        return generation_ != util::process_generation();
    }
    [[nodiscard]] ucs_status_t check_owner() const;
    [[nodiscard]] ucs_status_t check_has_card(const char *what) const;

    /* Which side of a copy memory is. */
    enum role { target, source };

    /* What to do about host memory here: for few bytes a look-up costs more
     * than it can save. */
    enum class host_side { find_registration, stage };

    ucs_status_t plan(const side &dst, const side &src, size_t length,
                      host_side host, copy_cursor &cursor);
    ucs_status_t plan_local(void *dst, void *src, size_t length, host_side host,
                            copy_cursor &cursor);
    ucs_status_t plan_between_cards(const memory_location &to,
                                    const memory_location &from,
                                    copy_cursor &cursor);
    ucs_status_t plan_remote_host(bool put, const side &there, void *here,
                                  size_t length, copy_cursor &cursor);
    ucs_status_t plan_remote_device(bool put, const side &there, void *here,
                                    size_t length, host_side host,
                                    copy_cursor &cursor);
    ucs_status_t plan_chunk(role which, const side &device, size_t length,
                            copy_cursor &cursor);
    [[nodiscard]] ucs_status_t check_packed(const side &device, size_t length);
    const memory_location *find_again(role which, const void *address,
                                      size_t length) const;
    [[nodiscard]] ucs_status_t find_local(role which, void *address,
                                          size_t length, host_side host,
                                          memory_location &where);
    static ucs_status_t hold_remote(const side &there, size_t length,
                                    copy_cursor &cursor);
    static ucs_status_t reach_remote(card &user, const side &there,
                                     uint64_t &va);
    void plan_host_side(void *host, const memory_location &where,
                        copy_cursor &cursor, uint64_t &va);
    ucs_status_t channel_to(card &owner, channel *&way);
    [[nodiscard]] dma_lane &lane_of(channel &way, shim::dma_direction direction,
                                    size_t length) const
    {
        return way.lane(direction, (length > options_.short_bytes)
                                       ? channel::copies::of_long
                                       : channel::copies::of_short);
    }
    /* Whether an operation can be had; makes more of them when all are in use.
     */
    bool has_operation();
    operation *new_operation(flush_domain *domain, kind what,
                             uct_completion_t *completion);
    bool copy_short(bool upload, const void *device, void *host, size_t length,
                    ucs_status_t &status_p);
    ucs_status_t copy_planned(const side &dst, const side &src, size_t length);
    void finish_copy(transfer &work, copy_cursor &cursor);
    void begin(operation &op);
    void enqueue(operation &op);
    bool has_landed(uint64_t sequence);
    bool watch_jobs();
    bool watch_room(const channel &way);
    bool submit_next(transfer &owner, copy_cursor &cursor, size_t leave);
    void finish(segment &job, ucs_status_t status);
    void send_onward(segment &job);
    segment &take_onward();
    unsigned submit_onward();
    void advance(ucs_list_link_t &list, operation &op);
    bool submit_piece(dma_lane &lane);
    void submit_all();
    static void copy_by_kernel(transfer &owner, copy_cursor &cursor,
                               size_t length);
    void copy_waiting();
    unsigned reap(shim::dma_queue &queue);
    unsigned reap_all();
    void end(operation &op);
    void end_if_done(operation &op);
    unsigned complete_ended();
    void complete(operation &op);
    void end_reached_flush(ucs_list_link_t &list, kind what);
    static void release(copy_cursor &cursor);

    struct undo_join {
        void operator()(registration_cache *joined) const
        {
            (void)joined->close();
        }
    };

    const transfer_options options_;
    const unsigned generation_ = util::process_generation();
    card *home_                = nullptr;
    device_table &table_       = device_table::instance();
    std::unique_ptr<registration_cache, undo_join>
        registrations_;              /* or nullptr */
    memory_location last_found_[2];  /* by role: device memory, most likely the
                                        next, too */
    std::unique_ptr<char[]> bounce_; /* bcopy from and to host memory of other
                                        processes */
    std::unique_ptr<wakeup_event> event_; /* made when it is asked for */
    std::vector<std::unique_ptr<channel>> channels_; /* by slot of the card */
    std::vector<std::unique_ptr<operation[]>> operations_; /* in blocks */
    unsigned made_ = 0; /* operations in them */
    ucs_list_link_t free_;
    ucs_list_link_t all_;     /* outstanding, oldest first */
    ucs_list_link_t fenced_;  /* behind a fence, oldest first */
    ucs_list_link_t kernels_; /* for the kernel to copy, next one first; what a
                                 card has to do waits in its lanes */
    ucs_list_link_t ended_;   /* with a completion to call */
    segment *onward_first_  = nullptr; /* to be sent to a second card */
    segment **onward_last_  = &onward_first_;
    uint64_t last_sequence_ = 0;
    uint64_t fence_         = 0; /* last sequence number before the fence */
};

} // namespace gaudi::base
