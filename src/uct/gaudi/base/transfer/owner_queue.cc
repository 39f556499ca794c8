#include "uct/gaudi/base/transfer/owner_queue.h"

#include "uct/gaudi/base/transfer/operations.h"

namespace gaudi::base {

int owner_queue::submit(uint64_t dst, uint64_t src, uint64_t length,
                        void *cookie, uint64_t &id_p)
{
    const auto &job   = *static_cast<const dma_job *>(cookie);
    const bool is_put = src < memory().size(); /* no device address is so low */
    id_p              = 0;
    return ask(*job.owner->plan->remote, is_put, is_put ? dst : src,
               is_put ? src : dst, length, cookie);
}

} // namespace gaudi::base
