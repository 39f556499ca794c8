#include "uct/gaudi/perftest.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/ucx/perf_allocator.h"

#include <mutex>

namespace gaudi::base {

namespace {

/* Copies for the program itself, beside its transport. It keeps the cards open
 * until the program ends. */
class helper_engine {
public:
    static helper_engine &instance()
    {
        static auto *helper = new helper_engine;
        return *helper;
    }

    ucs_status_t open()
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (engine_ != nullptr) {
            return UCS_OK;
        }
        auto &table         = card_table::instance();
        ucs_status_t status = table.open();
        if (status != UCS_OK) {
            table.explain_missing_card();
            return status;
        }
        return transfer_engine::create(*table.cards().front(), {}, engine_);
    }

    void copy(void *dst, const void *src, size_t length)
    {
        std::lock_guard<std::mutex> guard(lock_);
        ucs_status_t status = engine_->copy(dst, src, length);
        if (status != UCS_OK) {
            ucs_error("gaudi: copying %zu bytes for ucx_perftest failed: %s",
                      length, ucs_status_string(status));
        }
    }

private:
    std::mutex lock_;
    std::unique_ptr<transfer_engine> engine_;
};

} // namespace

void init_perftest()
{
    init_perf_allocator({[] { return helper_engine::instance().open(); },
                         [](void *dst, const void *src, size_t length) {
                             helper_engine::instance().copy(dst, src, length);
                         }});
}

} // namespace gaudi::base
