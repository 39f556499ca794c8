/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/faults.h"

#include "hlthunk_emulator/ports/wiring.h"
#include "hlthunk_emulator/settings.h"
#include "util/made_once.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <mutex>

namespace gaudi::emu {

namespace {

constexpr struct {
    std::string_view name;
    faulty_call call;
} calls[] = {
    {"open", faulty_call::open},        {"close", faulty_call::close},
    {"alloc", faulty_call::allocate},   {"free", faulty_call::free},
    {"map", faulty_call::map},          {"unmap", faulty_call::unmap},
    {"export", faulty_call::export_to}, {"import", faulty_call::import},
    {"route", faulty_call::route},      {"submit", faulty_call::submit},
    {"wait", faulty_call::wait},        {"job", faulty_call::job},
    {"packet", faulty_call::packet},    {"reset", faulty_call::reset},
    {"wqe", faulty_call::wqe},          {"port", faulty_call::port},
    {"now", faulty_call::now},
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

std::string read_effect(std::string_view text, faulty_call call,
                        fault_effect &effect)
{
    std::string_view name = text;
    const auto argument   = cut(name, ':');
    const bool of_job     = (call == faulty_call::job);
    const bool of_packet  = (call == faulty_call::packet);
    const bool of_wqe     = (call == faulty_call::wqe);
    if (call == faulty_call::port) {
        effect.kind = (text == "up") ? fault_kind::up : fault_kind::down;
        return ((text == "up") || (text == "down"))
                   ? std::string()
                   : quoted(text) + "is not down or up";
    }
    if (call == faulty_call::route) {
        effect.kind = fault_kind::reset;
        return (text == "reset") ? std::string()
                                 : quoted(text) + "is not reset";
    }
    if (of_wqe && (text == "lose")) {
        effect.kind = fault_kind::lose;
        return {};
    }
    if (name == "reset") {
        effect.kind = fault_kind::reset;
        return argument ? read_opens(*argument, effect) : std::string();
    }
    if ((name == "kill") && !argument && (call != faulty_call::close)) {
        effect.kind  = fault_kind::reset;
        effect.kills = true;
        return {};
    }
    if ((name == "remove") && !argument && (call != faulty_call::close)) {
        effect.kind = fault_kind::remove;
        return {};
    }
    if ((of_job || of_packet || of_wqe) && (name == "abort") && !argument) {
        effect.kind = fault_kind::abort;
        return {};
    }
    if (of_job && ((name == "lose") || ((name == "delay") && argument))) {
        effect.kind = (name == "lose") ? fault_kind::lose : fault_kind::delay;
        effect.time = job_timeout;
        return (!argument || read_time(*argument, effect.time))
                   ? std::string()
                   : quoted(*argument) + "is no time, as 10ms or 2s";
    }
    if (of_job || of_packet || of_wqe || (call == faulty_call::close) ||
        (call == faulty_call::now)) {
        return quoted(text) + "does not happen to what it is wished for";
    }
    for (const auto &[errno_name, error] : errors) {
        if (errno_name == text) {
            /* hl-thunk tries again without end what gets this answer. */
            if ((error == EAGAIN) && (call != faulty_call::open)) {
                return "'EAGAIN' never gets out of hl-thunk but from an open";
            }
            effect.kind  = fault_kind::error;
            effect.error = error;
            return {};
        }
    }
    return quoted(text) + "is no fault and no errno that the driver gives";
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
        wrong = ((read.call == faulty_call::now) ||
                 (read.call == faulty_call::port) ||
                 (read.call == faulty_call::reset))
                    ? quoted(call) + "is no call, and has no number"
                    : read_which(*which, read);
    }
    if (wrong.empty()) {
        wrong = (read.call == faulty_call::reset)
                    ? read_opens(what, read.effect)
                    : read_effect(what, read.call, read.effect);
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
    return *wished.get([] {
        auto *const made = new faults;
        made->add(get_settings().faults);
        return made;
    });
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
