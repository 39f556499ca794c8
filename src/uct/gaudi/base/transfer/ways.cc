#include "uct/gaudi/base/transfer/ways.h"

#include <algorithm>

namespace gaudi::base {

ucs_status_t upload::prepare(dma_job &job, size_t leave)
{
    if (filled != nullptr) {
        job.length = std::min(job.length, job.home->chunk_bytes());
    } else {
        if (!job.take_chunk(leave)) {
            return UCS_ERR_NO_RESOURCE;
        }
        const ucs_status_t status = src.read(job.chunk->data, job.length);
        if (status != UCS_OK) {
            return status;
        }
        filled = std::move(job.chunk);
    }
    job.dst = dst;
    job.src = filled->va;
    return UCS_OK;
}

void upload::submitted(dma_job &job)
{
    job.chunk = std::move(filled);
    dst += job.length;
    src.advance(job.length);
}

ucs_status_t kernel_copy::run(size_t length)
{
    const ucs_status_t status =
        put ? there.write(here, length) : there.read(here, length);
    if (status == UCS_OK) {
        there.advance(length);
        here += length;
    }
    return status;
}

} // namespace gaudi::base
