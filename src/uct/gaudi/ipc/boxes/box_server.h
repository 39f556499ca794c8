/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What an interface writes for others by: an engine of its own, so that any
 * thread that waits for such a write can go on with it, in whatever it was
 * called. No completion of a program's is called by it.
 */
#pragma once

#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/ipc/process/shared_page.h"
#include "util/locks.h"
#include "util/process.h"

#include <memory>
#include <mutex>

namespace gaudi::ipc {

class box_server final : public own_page::copier {
public:
    box_server()                              = default;
    box_server(const box_server &)            = delete;
    box_server &operator=(const box_server &) = delete;
    ~box_server() { close(); }

    [[nodiscard]] ucs_status_t open(const base::transfer_options &options);
    /** Ends what is under way; before whom it tells of that goes. */
    void close();

    /** For what follows, and for all that uses it. */
    util::brief_lock lock;
    std::unique_ptr<base::transfer_engine> engine;
    base::flush_domain domain{};

    void go_on() override;

private:
    const util::owning_process made_in_;
    own_page *page_ = nullptr;
};

} // namespace gaudi::ipc
