/* SPDX-License-Identifier: BSD-3-Clause */
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

#include <sstream>
#include <string>
#include <string_view>

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
    copies    = 1 << 4, /**< with its own engines */
    accesses  = 1 << 5, /**< its memory, with the engines of any card */
    opens     = 1 << 6,
    closes    = 1 << 7,
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
    [[nodiscard]] bool is_at_once() const
    {
        return std::string_view(wish).starts_with("now=");
    }
};

/** How a caller is told of an error: what the call returned, what the
 *  completion got, or by the error handler of the endpoint. */
struct answers {
    ucs_status_t call       = UCS_OK;
    ucs_status_t completion = UCS_OK;
    ucs_status_t endpoint   = UCS_OK;
};
using told = ucs_status_t answers::*;

inline constexpr told by_call       = &answers::call;
inline constexpr told by_completion = &answers::completion;
inline constexpr told by_endpoint   = &answers::endpoint;

struct operation_rules {
    const char *name;  /* of the test */
    unsigned needs;    /* these steps: it fails when they do */
    unsigned can_miss; /* does these, and succeeds without */
    told errors        = by_call;
    unsigned sometimes = no_step; /* like can_miss, if not done before */
};

/** What a caller has seen. */
struct observation : answers {
    bool has_met       = false; /* the fault, in the operation */
    bool hangs         = false;
    bool is_told_twice = false;
    bool is_wrong      = false; /* what has arrived */

    [[nodiscard]] bool is_good() const
    {
        return (call == UCS_OK) && (completion == UCS_OK) &&
               (endpoint == UCS_OK) && !hangs && !is_told_twice && !is_wrong;
    }
};

/** As a line, and back; false when it is none. */
inline std::string to_line(const observation &seen)
{
    std::ostringstream line;
    line << int{seen.call} << " " << int{seen.completion} << " "
         << int{seen.endpoint} << " " << seen.has_met << " " << seen.hangs
         << " " << seen.is_told_twice << " " << seen.is_wrong;
    return line.str();
}

inline bool from_line(const std::string &line, observation &seen)
{
    std::istringstream words(line);
    int call       = 0;
    int completion = 0;
    int endpoint   = 0;
    words >> call >> completion >> endpoint >> seen.has_met >> seen.hangs >>
        seen.is_told_twice >> seen.is_wrong;
    seen.call       = static_cast<ucs_status_t>(call);
    seen.completion = static_cast<ucs_status_t>(completion);
    seen.endpoint   = static_cast<ucs_status_t>(endpoint);
    return !words.fail();
}

enum class meeting { must, may, must_not };

/** Besides, nothing hangs, nothing is told twice, and no byte is wrong. */
struct expectation : answers {
    meeting with_fault = meeting::must_not;
};

/* All that a lost card is needed for. Host memory can still be registered and
 * keys unpacked, messages go on, and freeing and closing have nothing to wait
 * for. */
inline constexpr unsigned any_use = allocates | copies | accesses;

inline constexpr fault faults[] = {
    {"reset", "now=reset@0", any_use, UCS_ERR_NO_DEVICE, after::comes_back},
    {"removal", "now=remove@0", any_use, UCS_ERR_NO_DEVICE, after::is_gone},

    {"job_reset", "job=reset@0", copies, UCS_ERR_NO_DEVICE, after::comes_back},
    {"job_removal", "job=remove@0", copies, UCS_ERR_NO_DEVICE, after::is_gone},
    {"lost_job", "job=lose:50ms@0", copies, UCS_ERR_TIMED_OUT,
     after::comes_back},
    {"aborted_job", "job=abort@0", copies, UCS_ERR_IO_ERROR, after::works},
    {"late_job", "job=delay:20ms@0", copies, UCS_OK, after::works},
    {"submission", "submit=ENOMEM@0", copies, UCS_ERR_NO_MEMORY, after::works},

    {"allocation", "alloc=ENOMEM@0", allocates, UCS_ERR_NO_MEMORY,
     after::works},
    {"mapping", "map=ENOMEM@0", maps, UCS_ERR_NO_MEMORY, after::works},
    /* The job goes on, and the driver is asked again. */
    {"wait", "wait#1=EFAULT@0", copies, UCS_OK, after::works},
    /* There is nothing a caller could do about these. */
    {"free", "free=EBUSY@0", frees, UCS_OK, after::works},
    {"unmapping", "unmap#1=EINVAL@0", unmaps, UCS_OK, after::works},
    {"open", "open=EIO@0", opens, UCS_OK, after::works},
    {"close", "close=reset@0", closes, UCS_OK, after::works},
};

/* The framework allocates, maps and opens, so the transports do not. */
inline unsigned made_by_transports(bool beside_framework)
{
    return beside_framework ? (copies | accesses) : ~0u;
}

inline ucs_status_t error_of(const fault &what, bool beside_framework)
{
    /* It does not tell why its card has gone. */
    return (beside_framework && (what.status == UCS_ERR_TIMED_OUT))
               ? UCS_ERR_NO_DEVICE
               : what.status;
}

inline meeting meeting_of(const fault &what, const operation_rules &of,
                          unsigned made)
{
    if (what.is_at_once() || (what.hits & made & (of.needs | of.can_miss))) {
        return meeting::must;
    }
    return (what.hits & made & of.sometimes) ? meeting::may : meeting::must_not;
}

/** @param beside_framework  The framework has the card, and drives it. */
inline expectation expected(const fault &what, const operation_rules &of,
                            bool beside_framework)
{
    const unsigned made = made_by_transports(beside_framework);
    expectation wanted;
    wanted.with_fault = meeting_of(what, of, made);
    if ((what.hits & made & of.needs) == no_step) {
        return wanted;
    }
    /* Nothing is begun with chunks that are not mapped. */
    const told by = (what.hits == maps) ? by_call : of.errors;
    wanted.*by    = error_of(what, beside_framework);
    if (std::string_view(of.name) == "flush") { /* it has waited for the put */
        wanted.completion = wanted.endpoint;
    }
    return wanted;
}

} // namespace gaudi::test
