/**
 * What queues of streams ask of their card.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/synapse/session.h"

#include <chrono>
#include <memory>

namespace gaudi::shim {

/** When to ask whether a card is broken, and when to give it up. */
class patience {
public:
    using clock = std::chrono::steady_clock;

    /** How often a card that does not end a job is asked how it is. */
    static constexpr auto doubt = std::chrono::milliseconds(100);
    /** Twice the time after which the driver resets a card for a job of its
     *  own; SCAL's it does not watch. */
    static constexpr auto longest = std::chrono::seconds(60);

    /** A job was seen to run. @return Whether it is time to ask. */
    [[nodiscard]] bool is_over()
    {
        const clock::time_point now = clock::now();
        if (asked_ == clock::time_point()) {
            since_ = asked_ = now;
        } else if (now - asked_ >= doubt) {
            asked_ = now;
            return true;
        }
        return false;
    }

    /** Whether the job has been seen to run for too long. */
    [[nodiscard]] bool is_exhausted() const
    {
        return asked_ - since_ > longest;
    }

    /** One has ended. */
    void restore() { asked_ = {}; }

private:
    clock::time_point since_;
    clock::time_point asked_;
};

class stream_card : public card {
public:
    [[nodiscard]] synapse_session &session() const { return *session_; }

    /**
     * How SynapseAI calls a copy.
     *
     * @return 0; -EFAULT for an end that the card does not reach, -EINVAL for
     *         two that are in host memory.
     */
    [[nodiscard]] virtual int find_direction(uint64_t dst, uint64_t src,
                                             uint64_t length,
                                             synDmaDir &direction_p) const = 0;

    /** What a status of a call for a copy is.
     *  @return 0 or -errno; -ENODEV after the end of the card, which it may
     *          tell. */
    [[nodiscard]] virtual int judge(synStatus status) const = 0;

    /** Look at a job. @return As @ref query, without waiting. */
    [[nodiscard]] virtual int look(const job_event &event) const = 0;

    /** Whether the card is in reset, or gone: the events of its jobs tell
     *  nothing of that. If so, that is the end. */
    [[nodiscard]] virtual bool is_broken() const = 0;

    /** It has not ended a job for too long: that is the end, too. */
    virtual void give_up() const = 0;

    /** Whether a job that runs will never end: ask now and then. */
    [[nodiscard]] bool is_hopeless(patience &with) const
    {
        if (!with.is_over()) {
            return false;
        }
        if (is_broken()) {
            return true;
        }
        if (with.is_exhausted()) {
            give_up();
            return true;
        }
        return false;
    }

    /** Nothing is asked of SynapseAI, or given back, any more. */
    virtual void end() const = 0;

protected:
    stream_card(std::shared_ptr<synapse_session> session, int fd,
                const std::string &bus_id)
        : card(fd, bus_id), session_(std::move(session))
    {}

    const std::shared_ptr<synapse_session> session_;
};

/** Sleep, longer each time. @param pause_us  Of the next time. */
void sleep_longer(uint64_t &pause_us);

} // namespace gaudi::shim
