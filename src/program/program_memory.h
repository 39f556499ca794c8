/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What functions of ucx_gaudi.h keep from one call to the next: cards, engines
 * for copies, and what was allocated, registered and imported.
 *
 * The first use opens cards, and they stay open until close(): a card that is
 * released may be in reset for seconds, so allocations do not come and go with
 * them. Each engine has staging memory and queues on the cards that it was used
 * for, and serves one copy at a time. There are as many as copies were made at
 * once, up to a limit.
 *
 * Threads: any. One lock, which is not held while cards are opened or closed,
 * nor during copies, and which nothing that UCM calls takes.
 */
#pragma once

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/memory.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/ipc_md.h"
#include "util/process.h"

#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace gaudi {

/** Say that a function was given no pointer. @return UCS_ERR_INVALID_PARAM */
inline ucs_status_t refuse_null(const char *function)
{
    ucs_error("gaudi: %s: a pointer is NULL", function);
    return UCS_ERR_INVALID_PARAM;
}

class program_memory {
public:
    using engine_ptr = std::unique_ptr<base::transfer_engine>;

    /** That of this process. */
    static program_memory &instance()
    {
        return util::of_this_process<program_memory>();
    }

    /* What a function does, run as the body of one of these: nobody lets go of
     * the cards meanwhile. Exceptions become a status. */

    /** Opens none; the body holds those that are open, whoever opened them. */
    template <typename Body>
    static ucs_status_t call(Body &&body) noexcept
    {
        return run(false, nullptr, [&](program_memory &own) {
            return body(own, base::card_table::instance().cards());
        });
    }

    /** Opens cards, if this one is not open, or for NULL if none is. A call
     *  that fails leaves none open that it has opened. */
    template <typename Body>
    static ucs_status_t call_with_cards(const char *card, Body &&body) noexcept
    {
        return run(true, card, body);
    }

    /** Has gaudi_ipc ready for the body. Opens a card where one can be had, and
     *  does without else.
     *  @param before  What has to succeed first. */
    template <typename Before, typename Body>
    static ucs_status_t call_with_ipc(Before &&before, Body &&body) noexcept
    {
        return run(false, nullptr, [&](program_memory &own) {
            config_ptr config;
            ucs_status_t status = read_config(config);
            if (status == UCS_OK) {
                status = before();
            }
            if (status == UCS_OK) {
                status = own.open_ipc(*config);
            }
            return (status == UCS_OK) ? body() : status;
        });
    }

    /** Gives the body an engine, for which it may have to wait.
     *  @param opens  Cards, without which it fails. */
    template <typename Body>
    static ucs_status_t call_with_engine(bool opens, Body &&body) noexcept
    {
        return run(opens, nullptr, [&](program_memory &own) {
            engine_ptr engine;
            ucs_status_t status = own.take_engine(engine);
            if (status == UCS_OK) {
                status = base::guarded([&] { return body(*engine); });
                own.put_engine(std::move(engine));
            }
            return status;
        });
    }

    /** Have an engine for somebody who counts as a use of the cards: it is made
     *  where there is none. @param opens  Cards, without which this fails. */
    [[nodiscard]] static ucs_status_t
    prepare_engine(bool opens, const base::transfer_options &options,
                   engine_ptr &engine_p) noexcept;

    /** Let go of the cards. In no call. */
    [[nodiscard]] ucs_status_t close();

    /** Of allocations, by their addresses. */
    void add(base::device_memory &memory);
    /** @return nullptr when there is none. */
    [[nodiscard]] base::device_memory *take(void *address);

    /** Host memory that the program has registered.
     *  @return false when some begins at the same address already. */
    [[nodiscard]] bool add_host(base::host_region &memory);
    /** By its first address; nullptr when there is none. */
    [[nodiscard]] base::host_region *take_host(const void *address);
    /** What covers a range, with a reference; nullptr when nothing does. */
    [[nodiscard]] base::held_registration find_host(const void *address,
                                                    size_t length);

    /** What keeps the cards open, too, whoever has opened them. */
    enum class use { import, stream, ipc_export };
    void count(use what, int more);

private:
    struct release_config {
        void operator()(ipc::memory_domain::config *config) const
        {
            uct_config_release(config);
        }
    };
    using config_ptr =
        std::unique_ptr<ipc::memory_domain::config, release_config>;

    /* More threads than this wait for each other: each engine costs a MiB of
     * pinned memory per card. */
    static constexpr unsigned max_engines = 8;

    template <typename Body>
    static ucs_status_t run(bool opens, const char *card, Body &&body) noexcept
    {
        return base::guarded_entry([&] {
            auto &own           = instance();
            ucs_status_t status = own.enter(opens, card);
            if (status == UCS_OK) {
                status = base::guarded([&] { return body(own); });
            }
            own.leave(status);
            return status;
        });
    }

    [[nodiscard]] ucs_status_t enter(bool opens, const char *card);
    [[nodiscard]] ucs_status_t open(const char *card);
    [[nodiscard]] static ucs_status_t read_config(config_ptr &config_p);
    [[nodiscard]] ucs_status_t open_ipc(const ipc::memory_domain::config &);
    void leave(ucs_status_t status);
    [[nodiscard]] bool is_in_use() const;
    [[nodiscard]] ucs_status_t take_engine(engine_ptr &engine_p);
    void put_engine(engine_ptr engine);

    struct close_ipc {
        void operator()(ipc::memory_domain *domain) const
        {
            domain->close();
            delete domain;
        }
    };
    using ipc_ptr = std::unique_ptr<ipc::memory_domain, close_ipc>;

    /* Since the first use. */
    struct opened {
        base::held_cards cards; /* go last */
        ipc_ptr ipc;            /* holds cards, too; outlives engines */
        std::vector<engine_ptr> idle_engines;
        unsigned engines = 0;     /* and those in use */
        bool is_fresh    = false; /* for a call that has not succeeded yet */
    };

    std::mutex lock_;
    opened opened_;
    unsigned calls_ = 0;
    std::array<int, 3> uses_{};
    std::map<void *, base::device_memory *> allocations_;
    util::interval_tree host_; /* of host_region */
    std::condition_variable engine_is_idle_;
};

/** Makes `ucx_perftest -m gaudi` work: fills the slot of our memory type in the
 *  table of allocators that the program exports, for good. Called once, at
 * load, before main; does nothing in other programs. */
void init_perftest();

} // namespace gaudi
