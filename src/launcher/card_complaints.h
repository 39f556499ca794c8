/**
 * What is wrong with the cards of the box: a line for each cause, which names
 * all cards that have it.
 */
#pragma once

#include "hlthunk_shim/cards/card_info.h"
#include "launcher/machine.h"

#include <optional>
#include <string>
#include <vector>

namespace launcher {

class card_complaints {
public:
    /** @param used  What the transports give copies to. */
    explicit card_complaints(gaudi::shim::engine used) : used_(used) {}

    /** Of a card that does not work, or that the transports do not know.
     *  @return Whether they can use it. */
    [[nodiscard]] bool judge(const gaudi::shim::card_check &check,
                             const gaudi::shim::card_info &self);

    /** Of what all cards are used by, when they were judged one by one.
     *  @return Whether the transports can use any. */
    [[nodiscard]] bool judge_engine();

    [[nodiscard]] problems list() const;

private:
    struct cause {
        std::string of_one;  /* as "is in reset" */
        std::string of_many; /* as "are in reset" */
        std::string mend;
        std::vector<std::string> cards;
    };

    void add(const gaudi::shim::card_info &self, cause why);
    [[nodiscard]] std::string advise_framework();
    const std::string &why_no_synapse();

    const gaudi::shim::engine used_;
    std::vector<cause> causes_;
    problems of_engine_;
    bool any_               = false;            /* was judged */
    bool takes_submissions_ = false;            /* one of them does */
    std::optional<std::string> why_no_synapse_; /* once it was tried */
};

} // namespace launcher
