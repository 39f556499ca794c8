/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a caller must see when something goes wrong under an operation.
 *
 * A fault is a step of the driver or of the own card that goes wrong. An
 * operation has steps that it needs, so it fails with them, and steps that it
 * can do without. An event befalls the other process, the way to it, or the own
 * card, while operations between both are under way. For every case alike:
 * nothing hangs, nothing is told twice, what has ended well has moved the right
 * bytes, others go on, and nothing is left.
 */
#pragma once

#include "common/framework.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

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

/* --- operations ----------------------------------------------------------- */

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

enum class verb : uint8_t {
    put_short,
    put_bcopy,
    put_zcopy,
    get_short,
    get_bcopy,
    get_zcopy,
    message,
    put_registered,
    flush,
    allocate,
    mem_reg,
    mkey_pack,
    rkey_unpack,
    ep_close,
    iface_close,
    release,
    reopen
};

/** Memory: of the host and of the own card, where bytes come from, and where
 *  they go to; of a second card; and of the other process. */
enum class place : uint8_t {
    none,
    host,
    host_got,
    card,
    card_got,
    other,
    peer
};

struct operation {
    const char *name;
    verb what;
    place from;
    place to;
    unsigned needs;     /* these steps: it fails when they do */
    unsigned can_miss;  /* does these, and succeeds without */
    unsigned sometimes; /* the same, unless that is done already */
    size_t length = 1 << 20;

    [[nodiscard]] bool is_packed() const
    {
        return (what == verb::put_bcopy) || (what == verb::get_bcopy);
    }
    [[nodiscard]] size_t bytes() const { return is_packed() ? 4096 : length; }

    [[nodiscard]] told errors() const
    {
        if ((what == verb::put_bcopy) || (what == verb::flush)) {
            return by_endpoint;
        }
        return ((what == verb::get_bcopy) || (what == verb::put_zcopy) ||
                (what == verb::get_zcopy) || (what == verb::put_registered))
                   ? by_completion
                   : by_call;
    }

    [[nodiscard]] bool has_peer() const
    {
        return (from == place::peer) || (to == place::peer) ||
               (what == verb::message) || (what == verb::rkey_unpack);
    }
    [[nodiscard]] bool is_put() const { return what <= verb::put_zcopy; }
    [[nodiscard]] bool is_get() const
    {
        return (what >= verb::get_short) && (what <= verb::get_zcopy);
    }
    /** Of this process. */
    [[nodiscard]] place local() const { return is_get() ? to : from; }
    /** Between two processes, as often as one likes. */
    [[nodiscard]] bool is_of_stream() const
    {
        return has_peer() && (what <= verb::message);
    }
};

inline const std::vector<operation> &operations()
{
    using enum verb;
    using enum place;
    /* Copies with engines of the card. Host memory that is not mapped goes
     * through buffers that are; both stay mapped for the next operation. */
    constexpr unsigned copying = copies | accesses;
    constexpr unsigned mapping = maps | unmaps;
    /* Between device memory of the peer, whose card copies, and that of this
     * one, through chunks that both have mapped before the first of them.
     * Between host memory here and the peer's device memory no card of this
     * process is needed. */
    constexpr unsigned to_both = copying | maps;

    static const std::vector<operation> all = {
        /* Memory is of no use unless it is mapped. The test frees it. */
        {"alloc", allocate, none, none, allocates | maps, frees | unmaps, 0},
        {"free", release, none, none, 0, frees | unmaps, 0},
        {"mem_reg", mem_reg, none, none, 0, 0, mapping},
        {"put_short", put_short, host, card_got, copying, 0, mapping, 64},
        {"get_short", get_short, card, host_got, copying, 0, mapping, 64},
        {"put_long", put_short, host, card_got, copying, 0, mapping},
        {"put_bcopy", put_bcopy, host, card_got, copying, 0, mapping},
        {"get_bcopy", get_bcopy, card, host_got, copying, 0, mapping},
        {"put_zcopy", put_zcopy, host, card_got, copying, 0, mapping},
        {"put_registered", put_registered, host, card_got, copying, maps,
         unmaps},
        {"get_zcopy", get_zcopy, card, host_got, copying, 0, mapping},
        {"on_card", put_zcopy, card, card_got, copying, 0, 0},
        /* Through chunks of the host's memory that both cards have mapped. */
        {"to_other_card", put_zcopy, card, other, copying, 0, mapping},
        {"from_other_card", put_zcopy, other, card_got, copying | maps, 0,
         mapping},
        {"flush", flush, host, card_got, copying, 0, mapping},
        /* Operations under way may fail, but closing does not. */
        {"ep_close", ep_close, none, none, 0, copies, mapping},
        {"iface_close", iface_close, none, none, 0, copies | unmaps, maps},
        {"reopen", reopen, none, none, 0, opens | closes | frees | unmaps, 0},
        {"mkey_pack", mkey_pack, none, none, 0, 0, 0},
        {"rkey_unpack", rkey_unpack, none, none, 0, 0, 0},
        /* The card has no part in messages. */
        {"message", message, host, none, 0, 0, 0},
        {"ipc_put_short", put_short, host, peer, 0, 0, mapping},
        {"ipc_put_short_device", put_short, card, peer, to_both, 0, mapping},
        {"ipc_put_bcopy", put_bcopy, host, peer, 0, 0, mapping},
        {"ipc_put_host", put_zcopy, host, peer, 0, 0, unmaps},
        {"ipc_put_device", put_zcopy, card, peer, to_both, 0, mapping},
        {"ipc_put_8", put_zcopy, card, peer, to_both, 0, mapping, 8},
        {"ipc_get_short", get_short, peer, host_got, 0, 0, mapping},
        {"ipc_get_bcopy", get_bcopy, peer, host_got, 0, 0, mapping},
        {"ipc_get_host", get_zcopy, peer, host_got, 0, 0, unmaps},
        {"ipc_get_device", get_zcopy, peer, card_got, to_both, 0, mapping},
        {"ipc_get_8", get_zcopy, peer, card_got, to_both, 0, mapping, 8},
    };
    return all;
}

/* --- faults --------------------------------------------------------------- */

/** A card once a fault was met. */
enum class after : uint8_t { works, comes_back, is_gone };

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
    /** Whether it hits one of these: a framework does all else itself. */
    [[nodiscard]] bool is_of(unsigned steps) const
    {
        return (hits & steps &
                (runs_beside_framework() ? copies | accesses : ~0u)) != no_step;
    }
    /** Whether an operation cannot but meet it, */
    [[nodiscard]] bool is_met_by(const operation &of) const
    {
        return is_at_once() || is_of(of.needs | of.can_miss);
    }
    /** or may, if what it needs is not mapped yet. */
    [[nodiscard]] bool concerns(const operation &of) const
    {
        return is_met_by(of) || is_of(of.sometimes);
    }
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
    {"lost_job", "job=lose:20ms@0", copies, UCS_ERR_TIMED_OUT,
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

/** Whether it is to be tried: not where it cannot be met, nor on Gaudi3, which
 *  has one card per process, and is gone for good. */
inline bool is_tried(const fault &what, const operation &of)
{
    const bool has_other = (of.from == place::other) || (of.to == place::other);
    return what.concerns(of) &&
           !(has_one_card() && (has_other || ((what.card == after::is_gone) &&
                                              (of.what == verb::reopen))));
}

/** What a caller must be told. */
inline answers expected(const fault &what, const operation &of)
{
    answers wanted;
    if (!what.is_of(of.needs)) {
        return wanted;
    }
    /* Nothing is begun with chunks that are not mapped. */
    const told by = (what.hits == maps) ? by_call : of.errors();
    /* A framework does not tell why its card has gone. */
    wanted.*by = (runs_beside_framework() && (what.status == UCS_ERR_TIMED_OUT))
                     ? UCS_ERR_NO_DEVICE
                     : what.status;
    if (of.what == verb::flush) { /* it has waited for the put */
        wanted.completion = wanted.endpoint;
    }
    return wanted;
}

/* --- events --------------------------------------------------------------- */

enum class fate : uint8_t {
    killed,
    exits,
    executes,
    stopped,
    invalidates,
    ends_key,
    closes_domain,
    peer_reset,
    peer_removed,
    own_reset,
    port_down,
    port_down_and_up,
    all_ports_down,
    entries_fail
};

/** What was put is, when it has happened, */
enum class memory : uint8_t {
    unknown,
    as_put,
    as_later /**< what the other process wrote then, and is nobody else's */
};

using statuses = std::vector<ucs_status_t>;

struct event {
    const char *name;
    fate what;
    statuses ends; /* what is under way ends so, or well; later ones do */
    ucs_status_t of_messages;
    memory leaves;
    statuses over_ports{}; /* if not as over host memory */
    /* Of what is under way alone, over ports, which is all that it befalls. */
    statuses of_ports{};

    /** Writes over ports may be under way; each of these cases takes 6 s. */
    [[nodiscard]] bool leaves_ports() const
    {
        return (of_messages == UCS_ERR_ENDPOINT_TIMEOUT);
    }
};

inline const std::vector<event> &events()
{
    using enum memory;
    constexpr ucs_status_t dead = UCS_ERR_ENDPOINT_TIMEOUT;
    constexpr ucs_status_t lost = UCS_ERR_NO_DEVICE;
    /* Who ends by itself ends its keys first: what begins in between finds them
     * ended, or nobody who serves them. */
    static const statuses closing = {dead, UCS_ERR_CONNECTION_RESET,
                                     UCS_ERR_UNSUPPORTED};
    /* A port tells of the write, who looks at the card, of that. */
    static const statuses lost_by_ports = {UCS_ERR_IO_ERROR, lost};
    /* A write has arrived before the port failed, or has not. */
    static const statuses amid_writes = {UCS_OK, UCS_ERR_IO_ERROR};

    static const std::vector<event> all = {
        {"it_is_killed", fate::killed, {dead}, dead, unknown},
        {"it_exits", fate::exits, closing, dead, unknown},
        {"it_executes", fate::executes, {dead}, dead, unknown},
        {"it_is_stopped", fate::stopped, {UCS_OK}, UCS_OK, as_put},
        {"it_invalidates_the_key",
         fate::invalidates,
         {UCS_ERR_CONNECTION_RESET},
         UCS_OK,
         as_later},
        {"it_ends_the_key",
         fate::ends_key,
         {UCS_ERR_CONNECTION_RESET},
         UCS_OK,
         as_later},
        {"it_closes_its_domain", fate::closes_domain, closing, dead, unknown},
        {"its_card_is_reset",
         fate::peer_reset,
         {lost},
         UCS_OK,
         unknown,
         lost_by_ports},
        {"its_card_is_removed",
         fate::peer_removed,
         {lost},
         UCS_OK,
         unknown,
         lost_by_ports},
        {"the_own_card_is_reset",
         fate::own_reset,
         {lost},
         UCS_OK,
         as_put,
         lost_by_ports},
        {"a_port_goes_down",
         fate::port_down,
         {UCS_OK},
         UCS_OK,
         as_put,
         {},
         amid_writes},
        {"a_port_goes_down_and_up",
         fate::port_down_and_up,
         {UCS_OK},
         UCS_OK,
         as_put,
         {},
         {UCS_OK}},
        {"all_ports_go_down",
         fate::all_ports_down,
         {UCS_OK},
         UCS_OK,
         as_put,
         {UCS_ERR_IO_ERROR},
         amid_writes},
        {"entries_of_ports_fail",
         fate::entries_fail,
         {UCS_OK},
         UCS_OK,
         as_put,
         {},
         amid_writes},
    };
    return all;
}

/** What an operation comes to once it has happened. */
inline statuses ends_of(const event &what, const operation &of,
                        std::string_view routes)
{
    if (of.what == verb::message) {
        return {what.of_messages};
    }
    if ((routes == "ports") && !what.over_ports.empty()) {
        return what.over_ports;
    }
    if (!what.of_ports.empty() &&
        (of.what == verb::put_bcopy || of.what == verb::get_bcopy)) {
        return what.of_ports; /* its endpoint may have failed */
    }
    if (!what.of_ports.empty() && (of.what == verb::put_short)) {
        statuses ends = what.ends; /* so may this one's, if it took long */
        ends.insert(ends.end(), what.of_ports.begin(), what.of_ports.end());
        return ends;
    }
    /* The other process's card copies, and there is no other card. */
    if ((what.what == fate::own_reset) && (routes == "host") &&
        (of.local() != place::card) && (of.local() != place::card_got)) {
        return {UCS_OK};
    }
    return what.ends;
}

} // namespace gaudi::test
