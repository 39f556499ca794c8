/**
 * What a caller must see when a card fails under an operation.
 *
 * A fault is a step of the driver or of a card that goes wrong. An operation
 * has steps that it needs, so it fails with them, and steps that it can do
 * without. That, and how it tells of errors, is all that is expected of it.
 * For every case alike: nothing hangs, nothing is told twice, and what has
 * completed has moved the right bytes.
 */
#pragma once

#include <span>
#include <string>

extern "C" {
#include <ucs/type/status.h>
}

namespace gaudi::test {

/** What operations need a card and its driver for. */
enum step : unsigned {
    no_step   = 0,
    allocates = 1 << 0, /**< device memory */
    frees     = 1 << 1,
    maps      = 1 << 2, /**< device or host memory, to the card */
    unmaps    = 1 << 3,
    exports   = 1 << 4, /**< its memory, for another card or process */
    imports   = 1 << 5, /**< memory of another card or process */
    copies    = 1 << 6, /**< with its own engines */
    accesses  = 1 << 7, /**< its memory, with the engines of any card */
    opens     = 1 << 8,
    closes    = 1 << 9,
};

/** A card once a fault was met. */
enum class after { works, comes_back, is_gone };

struct fault {
    const char *name;    /* of the test */
    const char *wish;    /* for gaudi0, as hlthunk_emu_fault takes it */
    unsigned hits;       /* these steps */
    ucs_status_t status; /* of an operation that needs one of them */
    after card;

    /** From the moment of the wish, whatever is done. */
    [[nodiscard]] bool is_at_once() const;
};

/** How a caller is told of an error: what the call returned, what the
 *  completion got, or by the error handler of the endpoint. */
enum class told { by_call, by_completion, by_endpoint };

struct operation_rules {
    const char *name;  /* of the test */
    unsigned needs;    /* these steps: it fails when they do */
    unsigned can_miss; /* does these, and succeeds without */
    told errors        = told::by_call;
    unsigned sometimes = no_step; /* like can_miss, if not done before */
};

/** What a caller has seen. */
struct observation {
    ucs_status_t call       = UCS_OK;
    ucs_status_t completion = UCS_OK;
    ucs_status_t endpoint   = UCS_OK;
    bool has_met            = false; /* the fault, in the operation */
    bool hangs              = false;
    bool is_told_twice      = false;
    bool is_wrong           = false; /* what has arrived */

    [[nodiscard]] bool is_good() const;
};

/** As a line, and back; false when it is none. */
std::string to_line(const observation &seen);
bool from_line(const std::string &line, observation &seen);

enum class meeting { must, may, must_not };

/** Besides, nothing hangs, nothing is told twice, and no byte is wrong. */
struct expectation {
    ucs_status_t call       = UCS_OK;
    ucs_status_t completion = UCS_OK;
    ucs_status_t endpoint   = UCS_OK;
    meeting with_fault      = meeting::must_not;
};

std::span<const fault> faults();
std::span<const operation_rules> all_operation_rules();

/** @param beside_framework  The framework has the card, and drives it. */
expectation expected(const fault &what, const operation_rules &of,
                     bool beside_framework);

} // namespace gaudi::test
