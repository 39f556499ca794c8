/**
 * Device memory of the program itself, beside what it does through UCX: what
 * ucx_gaudi.h allocates, copies and fills, and what ucx_perftest does with its
 * buffers.
 *
 * The first use opens cards, and they stay open until close(): a card that is
 * released may be in reset for seconds, so allocations do not come and go with
 * them. Copies are made by engines of its own; each has staging memory and
 * queues on the cards that it was used for, and serves one copy at a time.
 * There are as many as copies were made at once, up to a limit.
 *
 * Threads: any. One lock, which is not held while cards are opened or closed,
 * nor during copies, and which nothing that UCM calls takes.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/memory/memory.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "util/process.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace gaudi {

class program_memory {
public:
    /** That of this process. */
    static program_memory &instance()
    {
        return util::of_this_process<program_memory>();
    }

    /* As the functions of ucx_gaudi.h, which say more. Errors are logged where
     * they are found, and what fails changes nothing, but that a copy that
     * fails on its way leaves some of the bytes. */

    [[nodiscard]] ucs_status_t open(const char *card);
    [[nodiscard]] ucs_status_t close();
    [[nodiscard]] ucs_status_t allocate(size_t length, const char *card,
                                        void *&address_p);
    [[nodiscard]] ucs_status_t free(void *address);
    [[nodiscard]] ucs_status_t copy(void *dst, const void *src, size_t length);
    [[nodiscard]] ucs_status_t fill(void *address, size_t length,
                                    const void *pattern, size_t pattern_length);

    /** Keeps the cards open until release(), whoever has opened them. */
    [[nodiscard]] ucs_status_t import(int fd, size_t offset, size_t length,
                                      const char *card, void *&address_p);
    [[nodiscard]] ucs_status_t release(void *address);

    /** A call that opens no cards: those that are open stay so until it ends.
     */
    class call {
    public:
        call();
        ~call() { home_.leave(UCS_OK); }
        call(const call &)            = delete;
        call &operator=(const call &) = delete;

        [[nodiscard]] const base::held_cards &cards() const { return cards_; }

    private:
        const base::held_cards cards_;
        program_memory &home_;
    };

private:
    using engine_ptr = std::unique_ptr<base::transfer_engine>;

    /* More threads than this wait for each other: each engine costs a MiB of
     * pinned memory per card. */
    static constexpr unsigned max_engines = 8;

    template <typename Work>
    [[nodiscard]] ucs_status_t with_cards(const char *card, Work &&work);
    template <typename Work>
    [[nodiscard]] ucs_status_t with_engine(Work &&work);
    [[nodiscard]] ucs_status_t enter(const char *card);
    [[nodiscard]] ucs_status_t open_for_call(const char *card);
    void leave(ucs_status_t status);
    [[nodiscard]] bool is_in_use() const;
    [[nodiscard]] ucs_status_t take_engine(engine_ptr &engine_p);
    void put_engine(engine_ptr engine);

    /* Since the first use. */
    struct opened {
        base::held_cards cards; /* go last */
        std::vector<engine_ptr> idle_engines;
        unsigned engines = 0;     /* and those in use */
        bool is_fresh    = false; /* for a call that has not succeeded yet */
    };

    std::mutex lock_;
    opened opened_;
    unsigned calls_   = 0;
    unsigned imports_ = 0;
    std::map<void *, base::device_memory *> allocations_;
    std::condition_variable engine_is_idle_;
};

/** Makes `ucx_perftest -m gaudi` work: fills the slot of our memory type in the
 *  table of allocators that the program exports, for good. Called once, at
 * load, before main; does nothing in other programs. */
void init_perftest();

} // namespace gaudi
