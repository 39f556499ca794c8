/**
 * Another process with a card of its own, which exports memory of it.
 */
#pragma once

#include "common/child.h"

#include <cstddef>
#include <memory>

namespace gaudi::test {

class exporting_process {
public:
    /** What is exported has the pattern of seed 9, and begins at an offset in
     *  the dma-buf; bytes. */
    static constexpr size_t size   = 1 << 20;
    static constexpr size_t offset = 777;

    /** @param options  Of the process. */
    explicit exporting_process(child_options options = {});
    ~exporting_process();
    exporting_process(const exporting_process &)            = delete;
    exporting_process &operator=(const exporting_process &) = delete;

    /** Ends well after a line. */
    std::unique_ptr<child_process> process;
    int fd = -1; /**< of the dma-buf */
};

} // namespace gaudi::test
