/**
 * A range of device addresses that the driver mapped in one piece: what
 * dma-bufs are made of, and what other cards of the process can reach.
 *
 * Threads: any. One mutex, held across driver calls, when a card reaches it for
 * the first time; nothing that UCM calls takes it.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/memory/card_mappings.h"

#include <cstdint>
#include <memory>
#include <mutex>

namespace gaudi::base {

/** What another part keeps for a backing; destroyed before the driver is asked
 *  to unmap that. */
class backing_export {
public:
    virtual ~backing_export() = default;
};

class device_backing {
public:
    device_backing(card &card_of, uint64_t mapped_va, uint64_t mapped_size)
        : owner(card_of), va(mapped_va), size(mapped_size)
    {}

    card &owner;
    const uint64_t va;   /**< as the driver gave it */
    const uint64_t size; /**< bytes, whole DRAM pages */

    /**
     * The address of the first byte on another card, which imports the memory
     * when it uses it for the first time.
     *
     * @return 0; -EOPNOTSUPP when the driver cannot export or import; else
     *         -errno. A refusal is kept and the driver not asked again, but for
     *         lack of memory and the like.
     */
    [[nodiscard]] int va_on(const card &user, uint64_t &va_p);

    /**
     * Use what is kept for it.
     *
     * @param make  Called with this backing when nothing is kept: what to keep,
     *              as a unique_ptr.
     * @param use   Called with what is kept. It may be destroyed as soon as
     *              this returns.
     */
    template <typename Make, typename Use>
    void with_export(Make &&make, Use &&use)
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (export_ == nullptr) {
            export_ = make(*this);
        }
        use(*export_);
    }

    /**
     * Have the other cards let go of it, and others be told, before it is
     * unmapped.
     *
     * @return Whether others may have it, who let go of it a little later.
     */
    [[nodiscard]] bool forget_peers();

private:
    std::mutex lock_; /* makes peers and the export */
    std::unique_ptr<backing_export> export_;
    card_mappings peers_;
};

} // namespace gaudi::base
