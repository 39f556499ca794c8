#include "launcher/card_complaints.h"

#include "launcher/trial.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace launcher {

namespace {

namespace shim = gaudi::shim;

std::string to_hex(uint32_t number)
{
    char text[16];
    std::snprintf(text, sizeof(text), "%#x", number);
    return text;
}

} // namespace

void card_complaints::add(const shim::card_info &self, cause why)
{
    const auto known =
        std::find_if(causes_.begin(), causes_.end(), [&](const cause &other) {
            return (other.of_one == why.of_one) && (other.mend == why.mend);
        });
    cause &to = (known != causes_.end()) ? *known
                                         : causes_.emplace_back(std::move(why));
    to.cards.push_back(std::to_string(self.index) + " (" + self.bus_id + ")");
}

/* Loads it in another process, once. */
const std::string &card_complaints::why_no_synapse()
{
    if (!why_no_synapse_.has_value()) {
        why_no_synapse_ = try_synapse();
    }
    return *why_no_synapse_;
}

std::string card_complaints::advise_framework()
{
    const std::string advice = shim::driver::how_to_use_synapse(used_);
    return why_no_synapse().empty()
               ? advice
               : advice + "; libSynapse.so cannot be loaded now: put its "
                          "directory into LD_LIBRARY_PATH";
}

bool card_complaints::judge(const shim::card_check &check,
                            const shim::card_info &self)
{
    using shim::device_condition;
    const bool answers = (check.error == 0);
    const bool works   = (check.condition != device_condition::in_reset) &&
                       (check.condition != device_condition::disabled);
    const bool known = check.takes_framework ? (used_ == shim::engine::synapse)
                                             : check.supported;
    if (check.condition == device_condition::in_reset) {
        add(self, {"is in reset",
                   "are in reset",
                   "wait some seconds: cards are reset after each program; "
                   "UCX_GAUDI_RESET_TIMEOUT is how long programs wait",
                   {}});
    } else if (check.condition == device_condition::disabled) {
        add(self,
            {"is disabled by its driver",
             "are disabled by their driver",
             "look at dmesg, and load the kernel driver again (modprobe -r "
             "habanalabs; modprobe habanalabs)",
             {}});
    } else if (!answers) {
        const std::string why = std::strerror(-check.error);
        add(self, {"does not answer: " + why,
                   "do not answer: " + why,
                   "wait for its reset to end, or look at dmesg",
                   {}});
    }
    any_ = true;
    takes_submissions_ |= check.supported;
    if (check.takes_framework && !known) {
        add(self, {"takes work through SynapseAI alone",
                   "take work through SynapseAI alone",
                   advise_framework(),
                   {}});
    } else if (answers && !known) {
        const std::string kind =
            shim::driver::supported_kinds() + ", but PCI device " +
            to_hex(check.pci_id) +
            (self.device_type.empty() ? "" : " " + self.device_type);
        add(self, {"is no " + kind,
                   "are no " + kind,
                   "use a release of ucx-gaudi that knows it, if there is one",
                   {}});
    }
    return answers && works && known;
}

bool card_complaints::judge_engine()
{
    if ((used_ != shim::engine::synapse) || !any_ || why_no_synapse().empty()) {
        return true;
    }
    of_engine_.push_back(
        {"UCX_GAUDI_ENGINE=synapse, and SynapseAI cannot be used: " +
             to_printable(why_no_synapse()),
         std::string("put the directory of libSynapse.so (usually "
                     "/usr/lib/habanalabs) into LD_LIBRARY_PATH") +
             (takes_submissions_ ? ", or unset UCX_GAUDI_ENGINE" : "")});
    return false;
}

problems card_complaints::list() const
{
    problems found = of_engine_;
    for (const cause &each : causes_) {
        std::string which;
        for (const std::string &one : each.cards) {
            which += (which.empty() ? "" : ", ") + one;
        }
        found.push_back({(each.cards.size() == 1)
                             ? "card " + which + " " + each.of_one
                             : "cards " + which + " " + each.of_many,
                         each.mend});
    }
    return found;
}

} // namespace launcher
