/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/operation.h"

#include <algorithm>
#include <new>

namespace gaudi::base {

namespace {

/* Records that are made at a time. */
constexpr unsigned block_operations = 256;

} // namespace

operations::operations(unsigned limit, copy_counts &counts)
    : limit_(limit), counts_(counts)
{
    for (ucs_list_link_t *list : {&free_, &all_, &ended_, &failed_}) {
        ucs_list_head_init(list);
    }
    blocks_.reserve(limit / block_operations + 1);
    (void)has_free();
}

void operations::disown()
{
    for (auto &block : blocks_) {
        (void)block.release();
    }
}

bool operations::make_free()
{
    const unsigned more = std::min(block_operations, limit_ - made_);
    std::unique_ptr<operation[]> block(
        (more > 0) ? new (std::nothrow) operation[more]() : nullptr);
    if (block == nullptr) {
        return false;
    }
    for (unsigned i = 0; i < more; ++i) {
        ucs_list_add_tail(&free_, &block[i].in_queue);
    }
    made_ += more;
    blocks_.push_back(std::move(block));
    return true;
}

void operations::put_back(operation &op)
{
    op.chunk.reset();
    op.by.reset();
    op.registration.reset();
    op.device[0].reset();
    op.device[1].reset();
    op.remote.reset();
    op.total = op.left = 0;
    op.moved_by        = mover::card;
    if (&op != &call_) {
        ucs_list_add_head(&free_, &op.in_queue);
    }
}

void operations::start(operation &op, flush_domain *domain, operation_kind what,
                       uct_completion_t *completion)
{
    op.in_flight  = 0;
    op.status     = UCS_OK;
    op.what       = what;
    op.has_ended  = false;
    op.is_late    = false;
    op.sequence   = ++last_sequence_;
    op.domain     = domain;
    op.completion = completion;
    if (what != operation_kind::flush_domain) {
        ucs_list_add_tail(&all_, &op.in_all);
    }
    if (domain != nullptr) {
        ucs_list_add_tail(&domain->operations, &op.in_domain);
    }
}

/* Whether the bytes of everything up to it are where they belong. Completions
 * may still have to be called. */
bool operations::is_past_fence() const
{
    const operation *op;
    ucs_list_for_each(op, &all_, in_all)
    {
        if (op->sequence > fence_) {
            return true;
        }
        if (!op->has_ended && (op->what != operation_kind::flush_all)) {
            return false;
        }
    }
    return true;
}

/* One that somebody is to hear of. What was given up is what its owner wanted,
 * but for its completion. */
static bool is_failure(const operation &op)
{
    return (op.status != UCS_OK) && (op.domain != nullptr) &&
           (op.what != operation_kind::flush_domain) &&
           (op.what != operation_kind::left) &&
           ((op.completion != nullptr) || (op.status != UCS_ERR_CANCELED));
}

/* Put an operation where its completion is called. */
void operations::end(operation &op)
{
    if (op.has_ended) {
        return;
    }
    op.has_ended = true;
    ucs_list_add_tail(&ended_, &op.in_queue);
    if (op.what != operation_kind::unpack) {
        op.chunk.reset(); /* a call that waits for one completes nothing */
    }
    if ((op.status == UCS_OK) && (op.total > 0) &&
        (op.what != operation_kind::left)) {
        counts_.add(op.moved_by, op.total);
    }
    if (ucs_unlikely(is_failure(op) && ((op.completion != nullptr) ||
                                        (op.domain->unheard == UCS_OK)))) {
        op.domain->unheard          = op.status;
        op.domain->unheard_sequence = op.sequence;
        op.domain->unheard_by       = op.completion;
    }
}

void operations::end_if_done(operation &op)
{
    if ((op.status != UCS_OK) && (op.left > 0)) {
        op.left = 0;
        ucs_list_del(&op.in_queue);
    }
    if ((op.left == 0) && (op.in_flight == 0)) {
        end(op);
    }
}

void operations::cancel(ucs_list_link_t &waiting)
{
    operation *op;
    operation *next;
    ucs_list_for_each_safe(op, next, &waiting, in_queue)
    {
        op->status = UCS_ERR_CANCELED;
        end_if_done(*op);
    }
}

void operations::cancel(flush_domain &domain, ucs_status_t status)
{
    operation *op;
    ucs_list_for_each(op, &domain.operations, in_domain)
    {
        if (!op->has_ended && (op->what != operation_kind::flush_domain)) {
            op->status = status;
            end_if_done(*op);
        }
    }
}

void operations::open(flush_domain &domain)
{
    ucs_list_head_init(&domain.operations);
    ucs_list_head_init(&domain.in_failed);
    domain.failure          = UCS_OK;
    domain.unheard          = UCS_OK;
    domain.unheard_sequence = 0;
    domain.unheard_by       = nullptr;
    domain.late             = 0;
    domain.slow             = 0;
    domain.has_waited       = false;
}

flush_domain *operations::take_failed()
{
    if (ucs_likely(ucs_list_is_empty(&failed_))) {
        return nullptr;
    }
    auto *domain = ucs_list_extract_head(&failed_, flush_domain, in_failed);
    ucs_list_head_init(&domain->in_failed);
    return domain;
}

void operations::close(flush_domain &domain)
{
    ucs_list_del(&domain.in_failed);
    operation *op;
    operation *next;
    ucs_list_for_each_safe(op, next, &domain.operations, in_domain)
    {
        ucs_list_del(&op->in_domain);
        op->domain = nullptr;
        if (op->what == operation_kind::flush_domain) {
            op->status = UCS_ERR_CANCELED;
            end(*op);
        }
    }
}

/* A flush that has become the oldest of its list has nothing to wait for. */
void operations::end_reached_flush(ucs_list_link_t &list, operation_kind what)
{
    if (ucs_list_is_empty(&list)) {
        return;
    }
    operation *oldest = (what == operation_kind::flush_all)
                            ? ucs_list_head(&list, operation, in_all)
                            : ucs_list_head(&list, operation, in_domain);
    if (oldest->what == what) {
        end(*oldest);
    }
}

/* An operation that had no completion to say so: the endpoint tells, and so do
 * flushes that wait for it. */
void operations::fail(flush_domain &domain, uint64_t sequence,
                      ucs_status_t status)
{
    operation *op;
    ucs_list_for_each(op, &domain.operations, in_domain)
    {
        if ((op->what == operation_kind::flush_domain) &&
            (op->sequence > sequence)) {
            op->status = status;
        }
    }
    if (domain.failure == UCS_OK) {
        domain.failure = status;
        ucs_list_add_tail(&failed_, &domain.in_failed);
    }
}

/* It is outstanding no more, and its callback has taken its bytes. */
void operations::retire(operation &op)
{
    flush_domain *domain = op.domain;
    if (op.what != operation_kind::flush_domain) {
        ucs_list_del(&op.in_all);
    }
    if (domain != nullptr) {
        ucs_list_del(&op.in_domain);
        domain->late -= op.is_late ? 1 : 0;
    }
    if ((op.what == operation_kind::unpack) && (op.status == UCS_OK)) {
        op.unpack(op.unpack_arg, op.chunk->data, op.total);
    }
    put_back(op);

    /* Both lists lost a member. */
    end_reached_flush(all_, operation_kind::flush_all);
    if (domain != nullptr) {
        end_reached_flush(domain->operations, operation_kind::flush_domain);
    }
}

ucs_status_t operations::take_ended(operation &op)
{
    const ucs_status_t status = op.status;
    if ((op.domain != nullptr) &&
        (op.domain->unheard_sequence == op.sequence)) {
        op.domain->unheard = UCS_OK; /* its caller hears now */
    }
    ucs_list_del(&op.in_queue);
    retire(op);
    return status;
}

void operations::complete(operation &op)
{
    uct_completion_t *completion = op.completion;
    const ucs_status_t status    = op.status;
    flush_domain *domain         = op.domain;

    if ((completion == nullptr) && is_failure(op)) {
        fail(*domain, op.sequence, status);
    }
    if ((domain != nullptr) &&
        ((completion == nullptr) ? (domain->unheard_sequence == op.sequence)
                                 : (completion->count == 1) &&
                                       (completion == domain->unheard_by))) {
        domain->unheard = UCS_OK; /* it hears now */
    }
    retire(op);

    /* Last: it may start operations, and destroy endpoints. */
    if (completion != nullptr) {
        uct_invoke_completion(completion, status);
    }
}

ucs_status_t operations::ended_failure() const
{
    const operation *op;
    ucs_list_for_each(op, &ended_, in_queue)
    {
        /* What was given up is what its owner wanted. */
        if ((op->status != UCS_OK) && (op->status != UCS_ERR_CANCELED) &&
            (op->what != operation_kind::left)) {
            return op->status;
        }
    }
    return UCS_OK;
}

unsigned operations::complete_ended()
{
    unsigned count = 0;
    while (!ucs_list_is_empty(&ended_)) {
        operation *op = ucs_list_extract_head(&ended_, operation, in_queue);
        complete(*op);
        ++count;
    }
    return count;
}

} // namespace gaudi::base
