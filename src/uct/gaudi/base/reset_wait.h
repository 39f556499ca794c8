/**
 * How long the opening of cards waits for those that are in reset.
 *
 * Under the lock on the cards. Opens that follow one another, as those of
 * several memory domains do, are one occasion: together they wait no longer
 * than one of them may.
 */
#pragma once

#include <chrono>

namespace gaudi::base {

class reset_wait {
public:
    /** @param seconds  Of one occasion; an hour at most. */
    explicit reset_wait(double seconds);

    /** Sleep a little, before cards are tried again.
     *  @return false, at once, when the time of this occasion is over. */
    [[nodiscard]] bool pause();

private:
    using clock = std::chrono::steady_clock;

    const clock::duration limit_;
    bool used_ = false; /* the other two mean something */
    clock::time_point last_;
    clock::time_point deadline_;
};

} // namespace gaudi::base
