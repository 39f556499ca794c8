/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/faults.h"

#include "hlthunk_emulator/ports/wiring.h"
#include "util/made_once.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <mutex>

namespace gaudi::emu {

namespace {

/* What a call may meet with. */
enum allowed : unsigned {
    errnos  = 1,
    eagain  = 2, /* hl-thunk tries again without end what else gets it */
    resets  = 4,
    opens   = 8,  /* how many opens find the card in reset */
    goes    = 16, /* kill and remove */
    aborts  = 32,
    delays  = 64,
    losses  = 128,
    times   = 256, /* until what is lost is a reset */
    wires   = 512,
    numbers = 1024, /* CALL#N */
    of_call = errnos | resets | opens | goes | numbers,
    of_work = resets | opens | goes | aborts | numbers
};

constexpr struct {
    std::string_view name;
    faulty_call call;
    unsigned may_meet;
} calls[] = {
    {"open", faulty_call::open, of_call | eagain},
    {"alloc", faulty_call::allocate, of_call},
    {"free", faulty_call::free, of_call},
    {"map", faulty_call::map, of_call},
    {"unmap", faulty_call::unmap, of_call},
    {"export", faulty_call::export_to, of_call},
    {"import", faulty_call::import, of_call},
    {"submit", faulty_call::submit, of_call},
    {"wait", faulty_call::wait, of_call},
    {"route", faulty_call::route, resets | numbers},
    {"job", faulty_call::job, of_work | delays | losses | times},
    {"packet", faulty_call::packet, of_work},
    {"wqe", faulty_call::wqe, of_work | losses},
    {"close", faulty_call::close, resets | opens | numbers},
    {"now", faulty_call::now, resets | opens | goes},
    {"reset", faulty_call::reset, 0},
    {"port", faulty_call::port, wires},
};

constexpr struct {
    std::string_view name;
    fault_kind kind;
    unsigned needs;    /* of what its call may meet with */
    unsigned argument; /* the same, for an argument; 0: it has none */
} effects[] = {
    {"reset", fault_kind::reset, resets, opens},
    {"kill", fault_kind::reset, goes, 0},
    {"remove", fault_kind::remove, goes, 0},
    {"abort", fault_kind::abort, aborts, 0},
    {"delay", fault_kind::delay, delays, delays},
    {"lose", fault_kind::lose, losses, times},
    {"down", fault_kind::down, wires, 0},
    {"up", fault_kind::up, wires, 0},
};

/* What the driver, or memory management for it, answers. */
constexpr struct {
    std::string_view name;
    int error;
} errors[] = {
    {"EACCES", EACCES}, {"EAGAIN", EAGAIN},
    {"EBADF", EBADF},   {"EBUSY", EBUSY},
    {"EFAULT", EFAULT}, {"EINVAL", EINVAL},
    {"EIO", EIO},       {"EMFILE", EMFILE},
    {"ENODEV", ENODEV}, {"ENOENT", ENOENT},
    {"ENOMEM", ENOMEM}, {"ENOTTY", ENOTTY},
    {"ENXIO", ENXIO},   {"EOPNOTSUPP", EOPNOTSUPP},
    {"EPERM", EPERM},   {"ETIMEDOUT", ETIMEDOUT},
};

/* How long the driver lets a job run (timeout_locked of Linux'
 * drivers/accel/habanalabs). */
constexpr std::chrono::seconds job_timeout{30};

constexpr struct {
    std::string_view name;
    uint64_t microseconds;
} units[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}};

/* A day: clocks are far from their ends. */
constexpr uint64_t longest_us = 86400ull * 1000000;

/* The text behind a separator, which is cut off with it. */
std::optional<std::string_view> cut(std::string_view &text, char separator)
{
    const size_t at = text.find(separator);
    if (at == std::string_view::npos) {
        return std::nullopt;
    }
    const std::string_view behind = text.substr(at + 1);
    text                          = text.substr(0, at);
    return behind;
}

/* A number at the begin of a text, which is cut off. */
bool read_number(std::string_view &text, uint64_t &value)
{
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) {
        return false;
    }
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
}

bool read_all(std::string_view text, uint64_t &value)
{
    return read_number(text, value) && text.empty();
}

bool read_time(std::string_view text, std::chrono::microseconds &time)
{
    uint64_t value = 0;
    if (!read_number(text, value)) {
        return false;
    }
    for (const auto &[name, microseconds] : units) {
        if ((text == name) && (value <= longest_us / microseconds)) {
            time = std::chrono::microseconds(value * microseconds);
            return true;
        }
    }
    return false;
}

std::string quoted(std::string_view text)
{
    return "'" + std::string(text) + "' ";
}

std::string read_which(std::string_view text, fault &read)
{
    const bool onward = text.ends_with('+');
    if (onward) {
        text.remove_suffix(1);
    }
    if (!read_all(text, read.first) || (read.first == 0)) {
        return quoted(text) + "is no number from 1 on";
    }
    read.last = onward ? UINT64_MAX : read.first;
    return {};
}

std::string read_opens(std::string_view text, fault_effect &effect)
{
    uint64_t opens = 0;
    if (!read_all(text, opens) || (opens > UINT32_MAX)) {
        return quoted(text) + "is no number of opens";
    }
    effect.kind  = fault_kind::reset;
    effect.opens = static_cast<uint32_t>(opens);
    return {};
}

std::string read_errno(std::string_view text, unsigned may_meet,
                       fault_effect &effect)
{
    for (const auto &[name, error] : errors) {
        if (name == text) {
            effect.kind  = fault_kind::error;
            effect.error = error;
            return ((error != EAGAIN) || ((may_meet & eagain) != 0))
                       ? std::string()
                       : "'EAGAIN' never gets out of hl-thunk but from an open";
        }
    }
    return quoted(text) + "is no fault and no errno that the driver gives";
}

std::string read_effect(std::string_view text, unsigned may_meet,
                        fault_effect &effect)
{
    std::string_view name = text;
    const auto argument   = cut(name, ':');
    const auto *row       = std::find_if(
              std::begin(effects), std::end(effects), [&](const auto &each) {
            return (each.name == name) && ((each.needs & may_meet) != 0);
        });
    if ((row == std::end(effects)) ||
        (argument && ((row->argument & may_meet) == 0))) {
        return ((may_meet & errnos) != 0)
                   ? read_errno(text, may_meet, effect)
                   : quoted(text) + "does not happen to what it is wished for";
    }
    effect.kind  = row->kind;
    effect.kills = (name == "kill");
    effect.time  = job_timeout;
    if (row->argument == opens) {
        return argument ? read_opens(*argument, effect) : std::string();
    }
    /* A delay has a time. */
    const std::string_view time = argument.value_or("");
    return (argument || (row->kind == fault_kind::delay)) &&
                   !read_time(time, effect.time)
               ? quoted(time) + "is no time, as 10ms or 2s"
               : std::string();
}

std::string parse_fault(std::string_view text, unsigned cards, fault &fault_p)
{
    fault read;
    std::string_view call = text;
    const auto behind     = cut(call, '=');
    if (!behind) {
        return quoted(text) + "has no '='";
    }
    std::string_view what = *behind;
    const auto card       = cut(what, '@');
    const auto which      = cut(call, '#');

    const auto *row =
        std::find_if(std::begin(calls), std::end(calls),
                     [&](const auto &each) { return each.name == call; });
    if (row == std::end(calls)) {
        return quoted(call) + "is no call that can go wrong";
    }
    read.call = row->call;
    if (card) {
        uint64_t number     = 0;
        std::string_view of = *card;
        const auto port =
            (read.call == faulty_call::port) ? cut(of, '.') : std::nullopt;
        if (!read_all(of, number) || (number >= cards)) {
            return quoted(of) + "is none of " + std::to_string(cards) +
                   ((cards == 1) ? " card" : " cards");
        }
        read.card = static_cast<unsigned>(number);
        if (port && (!read_all(*port, number) || (number >= ports_of_card))) {
            return quoted(*port) + "is no port of a card";
        }
        read.port =
            port ? std::optional(static_cast<unsigned>(number)) : std::nullopt;
    }
    std::string wrong;
    if (which) {
        wrong = ((row->may_meet & numbers) == 0)
                    ? quoted(call) + "is no call, and has no number"
                    : read_which(*which, read);
    }
    if (wrong.empty()) {
        wrong = (read.call == faulty_call::reset)
                    ? read_opens(what, read.effect)
                    : read_effect(what, row->may_meet, read.effect);
    }
    if (wrong.empty()) {
        fault_p = read;
    }
    return wrong;
}

} // namespace

std::string parse_faults(std::string_view text, unsigned cards,
                         std::vector<fault> &faults_p)
{
    for (std::optional<std::string_view> rest = text; rest.has_value();) {
        std::string_view next = *rest;
        rest                  = cut(next, ',');
        fault read;
        std::string wrong = parse_fault(next, cards, read);
        if (!wrong.empty()) {
            return wrong;
        }
        faults_p.push_back(read);
    }
    return {};
}

faults &faults::instance()
{
    /* Never destroyed: engine threads may outlive static destructors. */
    static constinit util::made_once<faults *> wished;
    return *wished.get([] { return new faults; });
}

void faults::add(const std::vector<fault> &wished)
{
    const std::lock_guard<util::child_mutex> guard(lock_);
    for (const fault &what : wished) {
        wishes_.push_back({what, {}});
    }
    any_ = !wishes_.empty();
}

void faults::clear()
{
    const std::lock_guard<util::child_mutex> guard(lock_);
    any_ = false;
    wishes_.clear();
}

fault_effect faults::count(faulty_call call, unsigned card)
{
    fault_effect met;
    const std::lock_guard<util::child_mutex> guard(lock_);
    for (wish &each : wishes_) {
        if ((each.what.call != call) ||
            (each.what.card.value_or(card) != card)) {
            continue;
        }
        const uint64_t number = ++each.calls[card];
        if ((met.kind == fault_kind::none) && (number >= each.what.first) &&
            (number <= each.what.last)) {
            met = each.what.effect;
        }
    }
    met_ += (met.kind != fault_kind::none) ? 1 : 0;
    return met;
}

} // namespace gaudi::emu
