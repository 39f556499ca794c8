/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/boxes/box_server.h"

#include <utility>

namespace gaudi::ipc {

ucs_status_t box_server::open(const base::transfer_options &options)
{
    base::transfer_engine::open(domain);
    const ucs_status_t status = base::transfer_engine::create(options, engine);
    page_                     = own_page::instance();
    if ((status == UCS_OK) && (page_ != nullptr)) {
        page_->add(*this);
    }
    return status;
}

void box_server::close()
{
    if ((page_ != nullptr) && !made_in_.is_parent()) {
        std::exchange(page_, nullptr)->remove(*this);
    }
    if (engine != nullptr) {
        engine->close(domain);
        engine.reset();
    }
}

/* Whoever has the lock is at it, or has something to do that ends. */
void box_server::go_on()
{
    const std::unique_lock<util::brief_lock> guard(lock, std::try_to_lock);
    if (guard.owns_lock()) {
        (void)engine->progress();
    }
}

} // namespace gaudi::ipc
