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

    /* Errors are logged where they are found, and what fails changes nothing,
     * unless something else is said. */

    /** Open cards, if they are not open, see base::card_table::open. */
    [[nodiscard]] ucs_status_t open(const char *card);

    /** Let go of the cards.
     *  @return UCS_ERR_BUSY while memory is allocated or imported here, or
     *  another thread is in a call. */
    [[nodiscard]] ucs_status_t close();

    /** @param card  Which one; NULL: the first that is open.
     *  @return UCS_ERR_INVALID_PARAM for no bytes; as open() and
     *  base::allocate do. */
    [[nodiscard]] ucs_status_t allocate(size_t length, const char *card,
                                        void *&address_p);

    /** @param address  As allocate() gave it; NULL does nothing.
     *  @return UCS_ERR_INVALID_ADDR for any other one. */
    [[nodiscard]] ucs_status_t free(void *address);

    /** Copy now, between host and device memory of any kind. The ranges do not
     *  overlap, or are the same.
     *  @return UCS_ERR_INVALID_PARAM for some that overlap,
     *  UCS_ERR_INVALID_ADDR for device addresses that are in no allocation;
     *  else as transfer_engine::copy. When a copy fails on its way the target
     *  has some of the bytes. */
    [[nodiscard]] ucs_status_t copy(void *dst, const void *src, size_t length);

    /** Fill memory with a pattern of 1, 2, 4, 8 or 16 bytes, which divide
     *  length: a part is copied, and doubled on the card.
     *  @return UCS_ERR_INVALID_PARAM for another pattern; else as copy(). */
    [[nodiscard]] ucs_status_t fill(void *address, size_t length,
                                    const void *pattern, size_t pattern_length);

    /** Map a dma-buf, which keeps the cards open until release(), whoever has
     *  opened them. See base::import_dmabuf.
     *  @param card  An open one; NULL: the first.
     *  @return UCS_ERR_NO_DEVICE when it is not open. */
    [[nodiscard]] ucs_status_t import(int fd, size_t offset, size_t length,
                                      const char *card, void *&address_p);

    /** Undo it, see base::release_import. */
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

} // namespace gaudi
