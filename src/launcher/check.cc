/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/check.h"

#include "launcher/trial.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include <unistd.h>

namespace launcher {

namespace {

/* How the child exits that ends all steps; else its verdict is the code. */
constexpr int exit_no_more = 100;

/* More pairs of a line are counted. */
constexpr int most_named = 8;

std::string now_doing; /* in a child */

/* How a child ended, as a line of the table. @return Whether others may follow
 * with this card. */
bool judge_trial(const trial &ended, finding &found)
{
    const std::string when = ended.activity();
    const bool is_stuck    = (ended.how == trial::end::stuck);
    found.log              = ended.output;
    found.seconds          = ended.seconds;
    if (ended.how == trial::end::unborn) {
        found.how    = verdict::failed;
        found.detail = ended.output;
        found.means  = "nothing could be tried: this system lets no step have "
                       "a process of its own";
        return true;
    }
    if (ended.how == trial::end::exited) {
        const auto told = static_cast<verdict>(ended.code);
        found.how       = ((told == verdict::ok) || (told == verdict::absent))
                              ? told
                              : verdict::failed;
        found.detail    = last_line(ended.output);
        return ended.code != exit_no_more;
    }
    if (ended.how == trial::end::killed) {
        found.how    = verdict::died;
        found.detail = "ended by signal " + std::to_string(ended.code) + when;
    } else {
        found.how = verdict::hung;
        found.detail =
            "no answer" + when + (is_stuck ? ", and it cannot be killed" : "");
    }
    return !is_stuck;
}

/* The findings so far, and what may follow. */
class run_of_steps {
public:
    run_of_steps(const check_request &wanted, check_result &result,
                 const std::function<void(const finding &)> &tell)
        : limit_(wanted.limit), result_(result), tell_(tell)
    {}

    /* @return Whether it is right. */
    bool run(const step &one, const subject &with)
    {
        const finding found = find(one, with, one.name);
        tell(found);
        return !found.is_wrong();
    }

    /* Nothing is told but what is wrong. @return Whether it is right. */
    bool try_first(const step &one, const subject &with)
    {
        const finding found = find(one, with, one.name);
        if (found.is_wrong()) {
            tell(found);
        }
        return !found.is_wrong();
    }

    /* A step of pairs: a line for each that is wrong, and one for the others
     * that end in the same way. */
    void run_pair(const step &one, const subject &with, const std::string &pair)
    {
        const finding found =
            find(one, with, std::string(one.name) + " " + pair);
        if (found.is_wrong()) {
            tell(found);
            return;
        }
        const auto same = std::ranges::find_if(pairs_, [&](const finding &of) {
            return (of.how == found.how) && (of.detail == found.detail);
        });
        if (same == pairs_.end()) {
            pairs_.push_back(found);
            pairs_.back().step  = one.name;
            pairs_.back().names = pair;
        } else {
            same->seconds += found.seconds;
            same->names += " " + pair;
        }
    }

    void tell_pairs()
    {
        for (finding &one : pairs_) {
            const auto count = std::ranges::count(one.names, ' ') + 1;
            one.detail +=
                ": " + ((count > most_named) ? std::to_string(count) + " pairs"
                                             : one.names);
            tell(one);
        }
    }

    void run(const std::vector<step> &all, const subject &with)
    {
        for (const step &one : all) {
            run(one, with);
        }
    }

private:
    void tell(const finding &found)
    {
        result_.findings.push_back(found);
        tell_(found);
    }

    finding find(const step &one, const subject &with, const std::string &name)
    {
        finding found;
        found.step = name;
        if (lost_.contains(with.bus_id) || lost_.contains(with.peer_bus_id)) {
            found.detail = "a card is in no state for it";
        } else if ((one.needs != nullptr) &&
                   (ends_[one.needs] != verdict::ok)) {
            found.how    = (ends_[one.needs] == verdict::absent)
                               ? verdict::absent
                               : verdict::left_out;
            found.detail = std::string(one.needs) + " has to go well first";
        } else {
            const trial ended = run_in_child(
                [&] {
                    end_step(verdict::ok, one.body(with));
                    return 0;
                },
                limit_);
            if (!judge_trial(ended, found)) {
                lost_.insert(with.bus_id);
            }
        }
        if (found.is_wrong() && found.means.empty()) {
            found.means = one.means;
        }
        ends_[one.name] = found.how;
        return found;
    }

    const std::chrono::seconds limit_;
    check_result &result_;
    const std::function<void(const finding &)> &tell_;
    std::map<std::string, verdict> ends_;
    std::vector<finding> pairs_; /* to be told at their end */
    std::set<std::string> lost_; /* cards that nothing more is tried with */
};

std::string one_line(const problem &of)
{
    return of.what + "; " + of.fix;
}

subject make_pair(const subject &of, const card &one, const card &other)
{
    subject both     = of;
    both.bus_id      = one.bus_id;
    both.peer_bus_id = other.bus_id;
    return both;
}

/* What a report loads is tried before. */
std::string look_at_module(const subject &with)
{
    doing("loading the module and the driver library, and asking the control "
          "nodes");
    (void)ask_module(*with.found);
    return "";
}

} // namespace

void doing(const std::string &what)
{
    now_doing = what;
    std::printf("%s%s\n", doing_mark, to_printable(what).c_str());
    std::fflush(stdout);
}

void end_step(verdict how, const std::string &detail, bool of_all)
{
    std::printf("%s\n", to_printable(detail).c_str());
    std::fflush(nullptr);
    _exit(of_all ? exit_no_more : static_cast<int>(how));
}

void fail_step(const std::string &why, bool of_all)
{
    end_step(verdict::failed, now_doing + ": " + why, of_all);
}

bool check_result::is_good() const
{
    return nothing.empty() &&
           std::ranges::none_of(findings,
                                [](const auto &one) { return one.is_wrong(); });
}

std::string explain_nothing(const report &found, const problems &closed,
                            const std::optional<unsigned> &wish)
{
    const auto wished = std::ranges::find(found.cards, wish, &card::name);
    if (wish.has_value() && !found.cards.empty()) {
        const std::string name = "card " + std::to_string(*wish);
        if (wished == found.cards.end()) {
            return "there is no " + name + "; ucx-gaudi info lists them";
        }
        if (!wished->held_by.empty() || (wished->state == "busy")) {
            return name + " is in use by " +
                   (wished->held_by.empty() ? gaudi::shim::describe({})
                                            : wished->held_by) +
                   "; end that, or choose another card by --card";
        }
    }
    return !closed.empty()          ? one_line(closed.front())
           : !found.missing.empty() ? one_line(found.missing.front())
                                    : "no card is free";
}

check_result run_check(const installation &files, const machine &where,
                       const check_request &wanted,
                       const std::function<void(const finding &)> &tell)
{
    check_result result;
    run_of_steps steps(wanted, result, tell);
    report &found = result.found;
    subject with{&found, wanted.limit / 2};
    step first = library_step;
    first.body = look_at_module;
    if (find_module(files, "", found).empty() &&
        !steps.try_first(first, with)) {
        return result;
    }
    found = make_report(files, where);
    if ((found.driver_options.used == gaudi::shim::engine::automatic) &&
        std::ranges::any_of(found.cards, &card::takes_framework)) {
        setenv("UCX_GAUDI_ENGINE", "synapse", 1);
        found = make_report(files, where);
    }

    std::vector<const card *> cards; /* the one that is checked comes first */
    for (const card &one : found.cards) {
        /* One in reset is waited for. */
        if (one.is_free || (one.name.has_value() && (one.state == "reset"))) {
            const bool wished =
                wanted.card.has_value() && (one.name == wanted.card);
            cards.insert(wished ? cards.begin() : cards.end(), &one);
        }
    }
    if (cards.empty() ||
        (wanted.card.has_value() && (cards.front()->name != wanted.card))) {
        result.nothing = explain_nothing(found,
                                         (found.driver_setting == "emulator")
                                             ? problems{}
                                             : find_closed_nodes(where),
                                         wanted.card);
        return result;
    }

    with.bus_id = cards.front()->bus_id;
    if (cards.size() > 1) {
        with = make_pair(with, *cards[0], *cards[1]);
    }
    steps.run(library_step, with);
    steps.run(card_steps, with);
    for (size_t i = 0; i < (wanted.card.has_value() ? 1 : cards.size()); ++i) {
        for (size_t j = i + 1; j < cards.size(); ++j) {
            steps.run_pair(pair_step, make_pair(with, *cards[i], *cards[j]),
                           std::to_string(*cards[i]->name) + "-" +
                               std::to_string(*cards[j]->name));
        }
    }
    steps.tell_pairs();
    steps.run(late_steps, with);
    if (wanted.reset) {
        steps.run(reset_step, with);
    }
    return result;
}

} // namespace launcher
