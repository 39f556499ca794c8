/**
 * A place in host memory, of this process or of another one: what the CPU or
 * the kernel reads and writes, and a card never sees.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "util/process_memory.h"

#include <cstddef>
#include <cstdint>

namespace gaudi::base {

class host_place {
public:
    explicit host_place(void *here)
        : address_(reinterpret_cast<uintptr_t>(here))
    {}
    /** @param process  Outlives the copy. */
    host_place(const util::process_memory &process, uint64_t there)
        : process_(&process), address_(there)
    {}

    /**
     * Read what is there.
     *
     * @param to  Host memory of this process.
     * @return UCS_OK, or an error, which was logged; never for memory of this
     *         process.
     */
    [[nodiscard]] ucs_status_t read(void *to, size_t length) const;

    /** Write there. @return As @ref read. */
    [[nodiscard]] ucs_status_t write(const void *from, size_t length) const;

    void advance(size_t length) { address_ += length; }

private:
    [[nodiscard]] ucs_status_t judge(int result, size_t length) const;

    const util::process_memory *process_ = nullptr; /* nullptr: this one */
    uint64_t address_;
};

} // namespace gaudi::base
