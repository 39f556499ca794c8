/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/box_traffic.h"

#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/file_lock.h"
#include "hlthunk_emulator/settings.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <string_view>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace gaudi::emu {

namespace {

constexpr uint64_t magic_of_state = 0x6369666661725433;
/* Processes of a box that have opened cards. Each has a byte of the file to
 * lock. */
constexpr unsigned max_owners = 4096;
/* How long somebody may go on taking a share who has been killed. */
constexpr model_time dead_unseen = 1'000'000;

model_time now()
{
    return model_time_of(std::chrono::steady_clock::now());
}

model_time nanoseconds(double microseconds)
{
    return static_cast<model_time>(microseconds * 1000);
}

/* Processes with other figures are of another world. */
std::string name_of_file(const timing_figures &speed)
{
    const std::string_view bytes(reinterpret_cast<const char *>(&speed),
                                 sizeof(speed));
    struct stat net {};
    (void)stat("/proc/self/ns/net", &net);
    return "hlthunk-emu/" + get_settings().node + '@' +
           std::to_string(net.st_ino) + "/traffic-" +
           std::to_string(std::hash<std::string_view>()(bytes));
}

} // namespace

struct box_traffic::shared_state {
    uint64_t magic;
    model_time looked_for_dead;
    pthread_mutex_t mutex; /* its owner may be killed */
    traffic all;
};

/* The shared state, as long as it is locked. */
class box_traffic::locked {
public:
    explicit locked(const box_traffic &of)
        : state_(*reinterpret_cast<shared_state *>(of.shared_.start()))
    {
        if (pthread_mutex_lock(&state_.mutex) == EOWNERDEAD) {
            /* Killed in here: the flows may be half changed. Jobs whose flows
             * are unknown have ended. */
            state_.all.erase_if([](const flow &) { return true; });
            pthread_mutex_consistent(&state_.mutex);
        }
    }
    ~locked() { pthread_mutex_unlock(&state_.mutex); }
    locked(const locked &)            = delete;
    locked &operator=(const locked &) = delete;

    shared_state *operator->() const { return &state_; }
    shared_state &operator*() const { return state_; }

private:
    shared_state &state_;
};

box_traffic *box_traffic::instance()
{
    if (!get_settings().timing.has_value()) {
        return nullptr;
    }
    auto &made = util::of_this_process<box_traffic>();
    return made.good() ? &made : nullptr;
}

box_traffic::box_traffic()
    : box_traffic(*get_settings().timing, name_of_file(*get_settings().timing))
{}

box_traffic::box_traffic(const timing_figures &speed, const std::string &name)
    : speed_(speed)
{
    const int ret = join(name);
    if (ret != 0) {
        shared_ = {};
        log("no timing model: %s", std::strerror(-ret));
    }
}

box_traffic::~box_traffic()
{
    if (good()) {
        const locked state(*this);
        state->all.erase_if(
            [this](const flow &known) { return known.owner == owner_; });
    }
}

bool box_traffic::map()
{
    closed_in_children_ = util::closed_in_children(fd_.get());
    if (!shared_.map(fd_.get(), 0, sizeof(shared_state))) {
        return false;
    }
    madvise(shared_.start(), shared_.length(), MADV_DONTFORK);
    return true;
}

/* In a new file. */
int box_traffic::begin()
{
    if (!map()) {
        return -errno;
    }
    auto *state = new (shared_.start()) shared_state;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    const int ret = pthread_mutex_init(&state->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    state->magic = magic_of_state;
    return -ret;
}

/* Find the file of the box, or make it. */
int box_traffic::join(const std::string &name)
{
    const int ret = share_memory_file(name, sizeof(shared_state), fd_,
                                      [this](int) { return begin(); });
    if (ret != 0) {
        return ret;
    }
    if (((shared_.start() == nullptr) && !map()) ||
        (reinterpret_cast<shared_state *>(shared_.start())->magic !=
         magic_of_state)) {
        return -EINVAL;
    }
    return take_owner_number();
}

int box_traffic::take_owner_number()
{
    for (unsigned owner = 0; owner < max_owners; ++owner) {
        if (set_lock(fd_.get(), F_WRLCK, owner) == 0) {
            owner_ = static_cast<uint16_t>(owner);
            const locked state(*this);
            state->all.erase_if(
                [owner](const flow &left) { return left.owner == owner; });
            return 0;
        }
    }
    return -EMFILE;
}

void box_traffic::drop_the_dead(shared_state &state, model_time now) const
{
    if (now - state.looked_for_dead < dead_unseen) {
        return;
    }
    state.looked_for_dead = now;
    std::map<unsigned, bool> alive{{owner_, true}};
    state.all.erase_if([&](const flow &known) {
        const auto [owner, is_new] = alive.try_emplace(known.owner, true);
        if (is_new) { /* asked once: everybody waits meanwhile */
            owner->second = is_locked(fd_.get(), known.owner);
        }
        return !owner->second;
    });
}

void box_traffic::add(flow added)
{
    added.owner = owner_;
    const locked state(*this);
    const model_time present = now();
    state->all.advance(speed_, present);
    drop_the_dead(*state, present);
    if (!state->all.add(added)) {
        log("the timing model is full: job %lu of card %u takes no time",
            added.job, static_cast<unsigned>(added.card));
    }
}

model_time box_traffic::last_byte(unsigned card, uint64_t job)
{
    const locked state(*this);
    const model_time present = now();
    state->all.advance(speed_, present);
    drop_the_dead(*state, present);
    return state->all.earliest_end(speed_, card, job);
}

model_time box_traffic::earliest_end(unsigned card, uint64_t job)
{
    const model_time end = last_byte(card, job);
    return (end == 0) ? 0 : end + nanoseconds(speed_.completion);
}

void box_traffic::forget(unsigned card, uint64_t job)
{
    const locked state(*this);
    state->all.erase_if([&](const flow &known) {
        return (known.card == card) && (known.job == job);
    });
}

void box_traffic::forget(unsigned card)
{
    const locked state(*this);
    state->all.advance(speed_, now());
    state->all.erase_if([&](const flow &known) { return known.card == card; });
}

} // namespace gaudi::emu
