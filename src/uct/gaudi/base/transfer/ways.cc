#include "uct/gaudi/base/transfer/ways.h"

#include <algorithm>

namespace gaudi::base {

namespace {

/* Have a job go through a chunk, if there is one. */
bool take_chunk(dma_job &job, size_t leave)
{
    job.length = std::min(job.length, job.home->chunk_bytes());
    job.chunk  = job.home->take_chunk(leave);
    return job.chunk != nullptr;
}

} // namespace

ucs_status_t direct_copy::prepare(dma_job &job, size_t /* leave */)
{
    job.dst = dst;
    job.src = src;
    return UCS_OK;
}

void direct_copy::submitted(dma_job &job)
{
    dst += job.length;
    src += job.length;
}

ucs_status_t upload::prepare(dma_job &job, size_t leave)
{
    if (filled == nullptr) {
        if (!take_chunk(job, leave)) {
            return UCS_ERR_NO_RESOURCE;
        }
        const ucs_status_t status = src.read(job.chunk->data, job.length);
        if (status != UCS_OK) {
            return status;
        }
        filled = std::move(job.chunk);
    }
    job.length = std::min(job.length, job.home->chunk_bytes());
    job.dst    = dst;
    job.src    = filled->va;
    return UCS_OK;
}

void upload::submitted(dma_job &job)
{
    job.chunk = std::move(filled);
    dst += job.length;
    src.advance(job.length);
}

ucs_status_t download::prepare(dma_job &job, size_t leave)
{
    if (!take_chunk(job, leave)) {
        return UCS_ERR_NO_RESOURCE;
    }
    job.dst  = job.chunk->va;
    job.src  = src;
    job.then = dst;
    return UCS_OK;
}

void download::submitted(dma_job &job)
{
    dst.advance(job.length);
    src += job.length;
}

ucs_status_t relay::prepare(dma_job &job, size_t leave)
{
    if (!take_chunk(job, leave)) {
        return UCS_ERR_NO_RESOURCE;
    }
    job.dst  = job.chunk->va;
    job.src  = src;
    job.then = dst;
    return UCS_OK;
}

void relay::submitted(dma_job &job)
{
    dst.dst += job.length;
    src += job.length;
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
