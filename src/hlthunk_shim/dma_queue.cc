#include "hlthunk_shim/dma_queue.h"

#include "hlthunk_shim/hlthunk/user_cb_queue.h"

#include <cerrno>

namespace gaudi::shim {

unsigned dma_streams(const device &dev, dma_direction direction)
{
    if (dev.hw_info().device_id != pci_id_gaudi2) {
        return 0;
    }
    return user_cb_queue::streams(direction);
}

int make_dma_queue(device &dev, dma_direction direction,
                   const dma_queue_options &options,
                   std::unique_ptr<dma_queue> &queue_p)
{
    if (dev.hw_info().device_id != pci_id_gaudi2) {
        return -ENOTSUP;
    }
    return user_cb_queue::create(dev, direction, options, queue_p);
}

} // namespace gaudi::shim
