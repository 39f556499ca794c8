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

/* How the child of a step exits. */
enum exit_codes { exit_ok, exit_failed, exit_absent, exit_no_more };

/* What stands before what a step says that it does. */
constexpr char doing_mark[] = "- ";

std::string last_line(std::string text, const std::string &mark)
{
    while (text.ends_with('\n')) {
        text.pop_back();
    }
    size_t at = text.rfind("\n" + mark);
    at = (at != text.npos) ? at + 1 : text.starts_with(mark) ? 0 : text.size();
    const size_t start = std::min(at + mark.size(), text.size());
    return to_printable(text.substr(start, text.find('\n', start) - start));
}

[[noreturn]] void end_child(int code, const std::string &detail)
{
    std::printf("%s\n", to_printable(detail).c_str());
    std::fflush(nullptr);
    _exit(code);
}

/* How a child ended, as a line of the table. @return Whether others may follow
 * with this card. */
bool judge_trial(const trial &ended, finding &found)
{
    const std::string doing = last_line(ended.output, doing_mark);
    const std::string when  = doing.empty() ? "" : " while " + doing;
    found.log               = ended.output;
    found.seconds           = ended.seconds;
    switch (ended.how) {
    case trial::end::killed:
        found.how    = verdict::died;
        found.detail = "ended by signal " + std::to_string(ended.code) + when;
        return true;
    case trial::end::late:
        found.how    = verdict::hung;
        found.detail = "no answer" + when;
        return true;
    case trial::end::stuck:
        found.how    = verdict::hung;
        found.detail = "no answer" + when + ", and it cannot be killed";
        return false;
    case trial::end::exited:
        break;
    }
    found.how    = (ended.code == exit_ok)       ? verdict::ok
                   : (ended.code == exit_absent) ? verdict::absent
                                                 : verdict::failed;
    found.detail = last_line(ended.output, "");
    return ended.code != exit_no_more;
}

/* The findings so far, and what may follow. */
class run_of_steps {
public:
    run_of_steps(std::chrono::seconds limit, check_result &result,
                 const std::function<void(const finding &)> &tell)
        : limit_(limit), result_(result), tell_(tell)
    {}

    void run(const step &one, const subject &with, const std::string &name)
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
                    end_child(exit_ok, one.body(with));
                    return exit_ok;
                },
                limit_);
            if (!judge_trial(ended, found)) {
                lost_.insert(with.bus_id);
            }
        }
        if (found.is_wrong()) {
            found.means = one.means;
        }
        ends_[one.name] = found.how;
        result_.findings.push_back(found);
        tell_(found);
    }

private:
    const std::chrono::seconds limit_;
    check_result &result_;
    const std::function<void(const finding &)> &tell_;
    std::map<std::string, verdict> ends_;
    std::set<std::string> lost_; /* cards that nothing more is tried with */
};

/* One in reset is waited for. */
bool is_free(const card &one)
{
    return one.name.has_value() &&
           ((one.state == card_state::reset) ||
            (one.usable && ((one.state == card_state::free) ||
                            (one.state == card_state::unknown))));
}

std::string one_line(const problem &of)
{
    return of.what + "; " + of.mend;
}

/* How a pair is to be checked. */
subject make_pair(const subject &of, const report &found, const card &one,
                  const card &other)
{
    subject both     = of;
    both.bus_id      = one.bus_id;
    both.peer_bus_id = other.bus_id;
    const std::pair names(std::min(*one.name, *other.name),
                          std::max(*one.name, *other.name));
    for (const pair_group &group : found.pairs) {
        for (const auto &[first, second] : group.pairs) {
            if (std::pair(std::min(first, second), std::max(first, second)) ==
                names) {
                both.over_pcie = (group.way == gaudi::shim::wire::pcie);
                both.why       = group.why;
            }
        }
    }
    return both;
}

void run_pairs(const subject &with, const report &found,
               const std::vector<const card *> &cards, bool all,
               run_of_steps &steps)
{
    for (size_t i = 0; i < cards.size(); ++i) {
        for (size_t j = i + 1; j < cards.size(); ++j) {
            if (all || (i == 0)) {
                steps.run(pair_step,
                          make_pair(with, found, *cards[i], *cards[j]),
                          std::string(pair_step.name) + " " +
                              std::to_string(*cards[i]->name) + "-" +
                              std::to_string(*cards[j]->name));
            }
        }
    }
}

/* As the report does it. */
void look_at_cards(const installation &files, const machine &where)
{
    report all;
    say_doing("loading the driver library");
    const auto driver = load_driver(files, where, all);
    if (driver != nullptr) {
        say_doing("asking the control nodes");
        add_cards(*driver, where, all);
    }
}

} // namespace

void say_doing(const std::string &what)
{
    std::printf("%s%s\n", doing_mark, to_printable(what).c_str());
    std::fflush(stdout);
}

void end_step(verdict how, const std::string &detail)
{
    end_child((how == verdict::ok)       ? exit_ok
              : (how == verdict::absent) ? exit_absent
                                         : exit_failed,
              detail);
}

void end_all_steps(const std::string &detail)
{
    end_child(exit_no_more, detail);
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
        if (!wished->held_by.empty() || (wished->state == card_state::busy)) {
            return name + " is in use by " + describe(wished->held_by) +
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
    run_of_steps steps(wanted.limit, result, tell);
    subject with{&files, &where, wanted.limit / 2};
    /* What is loaded into this process, and asked by it, is tried before. */
    finding loaded;
    loaded.step = library_step.name;
    (void)judge_trial(run_in_child(
                          [&] {
                              look_at_cards(files, where);
                              return exit_ok;
                          },
                          wanted.limit),
                      loaded);
    if (loaded.is_wrong()) {
        loaded.means = library_step.means;
        result.findings.push_back(loaded);
        tell(loaded);
        return result;
    }
    result.found = make_report(files, where);
    if (get_variable("UCX_GAUDI_ENGINE").empty() &&
        std::ranges::any_of(result.found.cards, &card::takes_framework)) {
        setenv("UCX_GAUDI_ENGINE", "synapse", 1);
        result.found = make_report(files, where);
    }

    std::vector<const card *> cards; /* the one that is checked comes first */
    for (const card &one : result.found.cards) {
        if (is_free(one)) {
            const bool first =
                wanted.card.has_value() && (one.name == wanted.card);
            cards.insert(first ? cards.begin() : cards.end(), &one);
        }
    }
    if (cards.empty() ||
        (wanted.card.has_value() && (cards.front()->name != wanted.card))) {
        result.nothing =
            explain_nothing(result.found,
                            (result.found.driver_setting == "emulator")
                                ? problems{}
                                : find_closed_nodes(where),
                            wanted.card);
        return result;
    }

    with.bus_id   = cards.front()->bus_id;
    with.software = cards.front()->software;
    if (cards.size() > 1) {
        with = make_pair(with, result.found, *cards[0], *cards[1]);
    }
    steps.run(library_step, with, library_step.name);
    for (const step &one : card_steps) {
        steps.run(one, with, one.name);
    }
    run_pairs(with, result.found, cards, !wanted.card.has_value(), steps);
    for (const step &one : late_steps) {
        steps.run(one, with, one.name);
    }
    if (wanted.reset) {
        steps.run(reset_step, with, reset_step.name);
    }
    return result;
}

} // namespace launcher
