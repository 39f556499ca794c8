/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies between host and device memory, of which one side may be another
 * process's.
 *
 * An engine serves one interface, on one thread at a time (UCT's rule). It
 * finds out what each address is, maps or stages host memory, keeps the card's
 * queues filled, and calls completions from progress() only. Device memory is
 * reached by DMA alone; the CPU touches host memory, and nothing but host
 * memory.
 *
 * Who moves the bytes to (put) or from (get) memory of another process:
 *
 * - its device memory: ports of the card here (a get: of the card there), where
 *   they are connected, else the card there, from or to host memory that both
 *   processes have, and for device memory here the card here from or to the
 *   same;
 * - its host memory: the same with the CPU there.
 *
 * Operations of a queue go first in, first out, long ones in pieces. Short ones
 * have a queue to themselves, where the card has a stream to spare. No order of
 * operations is kept but by fences: behind one nothing is started before all
 * that was has landed.
 *
 * Staging memory is fixed at creation; records of operations are made as they
 * are needed, up to a limit: UCP's protocols for device memory expect that zero
 * copy always finds one. Running out of either is UCS_ERR_NO_RESOURCE.
 */
#pragma once

#include "uct/gaudi/base/transfer/planner.h"
#include "uct/gaudi/base/transfer/wakeup.h"

#include <map>
#include <memory>

namespace gaudi::base {

class transfer_engine {
public:
    /** @param home  Card of the interface; others are used as needed. */
    [[nodiscard]] static ucs_status_t
    create(card &home, const transfer_options &options,
           std::unique_ptr<transfer_engine> &engine_p);

    /** Of a process without a card: for host memory, here and elsewhere. Device
     *  memory is an error, UCS_ERR_NO_DEVICE, until somebody opens cards. */
    [[nodiscard]] static ucs_status_t
    create(const transfer_options &options,
           std::unique_ptr<transfer_engine> &engine_p);

    /** Waits for jobs that cards still run; completes the rest as canceled. */
    ~transfer_engine();

    /** Copy now. Calls no completion of other operations. Behind a fence it
     *  waits for what was started before: UCP cannot try its short operations
     *  again.
     *  @return UCS_OK when the bytes are there; else an error, which was
     *          logged: for memory of another process UCS_ERR_ENDPOINT_TIMEOUT
     *          when that is gone, UCS_ERR_UNREACHABLE when we may not touch its
     *          memory, UCS_ERR_INVALID_ADDR when it is not there, and what @ref
     *          remote_memory says. */
    [[nodiscard]] ucs_status_t copy(const side &dst, const side &src,
                                    size_t length);

    /**
     * The same for a short operation of an endpoint. One with memory of another
     * process waits for that process no longer than about 50 ms:
     *
     * - a put from host memory returns UCS_OK then. Its bytes are in a chunk; a
     *   failure is the endpoint's, as of @ref start_packed;
     * - others return UCS_ERR_NO_RESOURCE. What was asked for goes on without
     *   the caller's host memory, and fails nobody; until it has ended the
     *   endpoint's next ones return the same at once;
     * - so does one that is longer than the chunks that it finds.
     *
     * The call behind that waits twice as long, and so on: a peer that is slow
     * is not asked for ever.
     */
    [[nodiscard]] ucs_status_t copy_short(flush_domain &domain, const side &dst,
                                          const side &src, size_t length);

    /** Whether so many bytes of device memory are there. @return UCS_OK, or an
     *  error of @ref copy, which was logged. */
    [[nodiscard]] ucs_status_t check(const side &device, size_t length)
    {
        return planner_.check(device, length);
    }

    /** Start a copy.
     *  @param completion  Called from progress, also for a failure; may be
     *                     NULL.
     *  @return UCS_INPROGRESS, or UCS_ERR_NO_RESOURCE, or an error, which was
     *          logged; on an error nothing was started and nothing is called.
     *          The completion gets the errors of @ref copy. */
    [[nodiscard]] ucs_status_t start(flush_domain &domain, const side &dst,
                                     const side &src, size_t length,
                                     uct_completion_t *completion);

    /** Let a callback write the bytes, and start their copy; they are there on
     *  return when the target is host memory. Nothing is copied of what could
     *  not be fetched: see packing.h.
     *  @return Bytes, or a negative status as for @ref start. */
    [[nodiscard]] ssize_t start_packed(flush_domain &domain, const side &dst,
                                       uct_pack_callback_t pack, void *arg);

    /**
     * What an operation returns that has just been started or not. Errors that
     * only a program's surroundings are to blame for, as a card that was reset,
     * come from progress, if there is a completion: the new protocols of UCP
     * 1.13 end the process when a get fails at once.
     *
     * @param status  Of @ref start or @ref start_unpacked.
     */
    [[nodiscard]] ucs_status_t result_of(flush_domain &domain,
                                         ucs_status_t status,
                                         uct_completion_t *completion)
    {
        return ucs_likely(!UCS_STATUS_IS_ERR(status))
                   ? status
                   : fail_later(domain, status, completion);
    }

    /** Start a copy whose bytes a callback takes, from progress.
     *
     *  With memcpy as the callback, a device address as `arg` is the target of
     *  the copy itself: UCP passes memcpy and the user's buffer.
     *  @return As for @ref start; UCS_OK when the source is host memory, whose
     *          bytes the callback has taken then. */
    [[nodiscard]] ucs_status_t start_unpacked(flush_domain &domain,
                                              const side &src, size_t length,
                                              uct_unpack_callback_t unpack,
                                              void *arg,
                                              uct_completion_t *completion);

    /** Give up the operations of an endpoint. They complete from progress with
     *  this status, or, if they had ended before, as they ended; what a card is
     *  copying right now is waited for. */
    void cancel(flush_domain &domain, ucs_status_t status)
    {
        operations_.cancel(domain, status);
    }

    /** Wait for what was started.
     *  @param domain      Whose operations; nullptr for all.
     *  @param completion  May be NULL, then call again until UCS_OK.
     *  @return UCS_OK when there is nothing to wait for; UCS_INPROGRESS;
     *          UCS_ERR_NO_RESOURCE. */
    [[nodiscard]] ucs_status_t flush(flush_domain *domain,
                                     uct_completion_t *completion);

    /** Nothing is started from now on before what was started has landed. */
    void fence() { operations_.fence(); }

    /** The same for operations of other engines and transports: wait until what
     *  was started has ended. Calls no completion. Each job ends, at the latest
     *  by the driver's or the owner's timeout.
     *  @return How one of them has failed, unless its completion has told. */
    [[nodiscard]] ucs_status_t drain_fence();

    /** Whether what was started before the last fence has ended. */
    [[nodiscard]] bool is_past_fence() { return operations_.is_past_fence(); }

    /** As operations::fenced_failure. */
    [[nodiscard]] ucs_status_t fenced_failure(const flush_domain &domain) const
    {
        return operations_.fenced_failure(domain);
    }

    /** Whether @ref progress would have nothing to do. Two loads. */
    [[nodiscard]] bool is_idle() { return operations_.is_idle(); }

    /** Collect ended jobs, submit more, call completions. @return How many. */
    unsigned progress();

    /** A domain of which an operation has failed that has no completion, each
     *  once; nullptr: none. See flush_domain::failure. */
    [[nodiscard]] flush_domain *take_failed()
    {
        return operations_.take_failed();
    }

    /** The file descriptor of @ref arm, owned by the engine.
     *  @return UCS_ERR_IO_ERROR without one, which was logged. */
    [[nodiscard]] ucs_status_t event_fd(int &fd_p);

    /** Have the file descriptor become readable when @ref progress has
     * something to do. @return UCS_ERR_BUSY: there is something now, nothing
     * was armed.
     */
    [[nodiscard]] ucs_status_t arm();

    /** Connect ports of a card of this process with those of another one, which
     *  asks.
     *  @param offer    What it sent; then what goes back.
     *  @param ports_p  For @ref start_over_ports, until @ref end_ports.
     *  @return 0 or -errno, said at debug level. */
    [[nodiscard]] int connect_ports(pci_address address,
                                    shim::port_offer &offer,
                                    port_lane *&ports_p);
    /** See @ref lane_set::end_ports. */
    void end_ports(port_lane &ports, bool at_once)
    {
        --ports.users;
        lanes_.end_ports(ports, at_once);
    }

    /** Start a write of memory of that card to where the other one has memory.
     *  @return As @ref start. */
    [[nodiscard]] ucs_status_t start_over_ports(flush_domain &domain,
                                                port_lane &ports,
                                                uint64_t target,
                                                uint64_t source, size_t length,
                                                uct_completion_t *completion);

    /** Whether any kind of operation of an endpoint could be started now. */
    [[nodiscard]] bool has_resources(const flush_domain &domain)
    {
        return (domain.late == 0) && !planner_.waits_for_ports() &&
               has_resources();
    }
    [[nodiscard]] bool has_resources() { return may_start() && has_chunks(); }
    /** Whether one might, if it needs no staging memory, or finds some. */
    [[nodiscard]] bool may_start()
    {
        return is_past_fence() && operations_.has_free();
    }

    /** Have UCX show what is copied with an interface, whose engine this is.
     *  Once. */
    void show_in(uct_iface_h iface) { counts_.show_in(iface); }

    /** Add what is counted to UCX's virtual file system. Any thread. */
    void add_files() { counts_.add_files(); }

    /** Prepare the domain of a new endpoint. */
    static void open(flush_domain &domain) { operations::open(domain); }

    /** Let go of the domain of an endpoint that is destroyed; its operations
     *  still complete. */
    void close(flush_domain &domain) { operations_.close(domain); }

    /** Nothing new is copied from or to a peer's memory by this engine. */
    void release(remote_peer &peer) { lanes_.release(peer); }

    /** Ask a peer whether its memory can still be used, and wait for that.
     *  @return UCS_OK, UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT when
     *          it has ended, or UCS_ERR_TIMED_OUT. */
    [[nodiscard]] ucs_status_t check_at(remote_memory &memory,
                                        remote_peer &peer, double timeout_s);

    /** Peers of a program's engine, by process. An interface has its own. */
    std::map<uint64_t, std::shared_ptr<remote_peer>> peers;

private:
    explicit transfer_engine(const transfer_options &options);

    /* A record, where no fence is in the way. */
    [[nodiscard]] operation *take()
    {
        return is_past_fence() ? operations_.take() : nullptr;
    }
    [[nodiscard]] ucs_status_t take_planned(const side &dst, const side &src,
                                            size_t length, host_side host,
                                            operation *&op_p);
    [[nodiscard]] ucs_status_t fail_later(flush_domain &domain,
                                          ucs_status_t why,
                                          uct_completion_t *completion);
    [[nodiscard]] bool copy_at_once(lane &by, bool to_card, uint64_t va,
                                    void *host, size_t length,
                                    ucs_status_t &status_p);
    [[nodiscard]] ucs_status_t copy_piece(flush_domain &domain, const side &dst,
                                          const side &src, size_t length,
                                          bool is_first);
    void begin(operation &op);

    /* Moving the bytes of what was begun. */
    bool prepare(job &next, operation &op);
    bool submit_next(operation &op);
    void submit_waiting(work_queue &queue);
    void submit_onward();
    void finish(job &ended, ucs_status_t status);
    unsigned collect(lane &from);
    unsigned collect_all();
    bool advance();
    void wait_for_fence();
    [[nodiscard]] bool has_chunks() const;
    [[nodiscard]] bool arm_lanes();
    [[nodiscard]] bool drain();

    const transfer_options options_;
    copy_counts counts_;
    planner planner_; /* goes last: cards and registrations are its */
    lane_set lanes_;
    operations operations_;
    ucs_queue_head_t onward_; /* jobs for another lane, oldest first */
    bool waits_for_fence_ = false;
    std::unique_ptr<wakeup_event> event_; /* made when it is asked for */
};

} // namespace gaudi::base
