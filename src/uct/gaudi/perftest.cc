#include "uct/gaudi/perftest.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/ucx/perf_allocator.h"

#include <mutex>

namespace gaudi::base {

namespace {

/* Copies for the program itself, beside its transport. It keeps the cards open
 * until the program ends. */
struct helper {
    std::mutex lock;
    std::unique_ptr<transfer_engine> engine;
};

helper &own()
{
    static auto *one = new helper;
    return *one;
}

ucs_status_t open()
{
    std::lock_guard<std::mutex> guard(own().lock);
    if (own().engine != nullptr) {
        return UCS_OK;
    }
    auto &table         = card_table::instance();
    ucs_status_t status = table.open();
    if (status != UCS_OK) {
        table.explain_missing_card();
        return status;
    }
    return transfer_engine::create(*table.cards().front(), {}, own().engine);
}

void copy(void *dst, const void *src, size_t length)
{
    std::lock_guard<std::mutex> guard(own().lock);
    ucs_status_t status = own().engine->copy(dst, src, length);
    if (status != UCS_OK) {
        ucs_error("gaudi: copying %zu bytes for ucx_perftest failed: %s",
                  length, ucs_status_string(status));
    }
}

} // namespace

void init_perftest()
{
    init_perf_allocator({open, copy});
}

} // namespace gaudi::base
