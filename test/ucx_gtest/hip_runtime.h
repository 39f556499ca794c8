/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The functions of AMD's HIP that UCX's own tests call (test/gtest/common/
 * mem_buffer.cc of UCX 1.13 to 1.23), on Gaudi memory. With HAVE_ROCM these
 * tests then use Gaudi memory wherever they would use that of a GPU.
 */
#ifndef UCX_GTEST_HIP_RUNTIME_H
#define UCX_GTEST_HIP_RUNTIME_H

#include "program/ucx_gaudi.h"

typedef ucs_status_t hipError_t;
#define hipSuccess UCS_OK

enum { hipMemcpyDefault, hipMemoryTypeUnified, hipDeviceAttributeImageSupport };

typedef struct {
    int type;
    int memoryType;
} hipPointerAttribute_t;

static inline hipError_t hipGetDeviceCount(int *count)
{
    ucx_gaudi_card_attr_t attr;

    attr.field_mask = 0;
    *count          = 0;
    while (ucx_gaudi_card_query(*count, &attr) == UCS_OK) {
        ++*count;
    }
    return UCS_OK;
}

static inline hipError_t hipSetDevice(int)
{
    return UCS_OK;
}

static inline hipError_t hipMalloc(void **address_p, size_t length)
{
    return ucx_gaudi_mem_alloc(length, NULL, address_p);
}

static inline hipError_t hipFree(void *address)
{
    return ucx_gaudi_mem_free(address);
}

static inline hipError_t hipMemset(void *address, int value, size_t length)
{
    const unsigned char pattern = (unsigned char)value;

    return ucx_gaudi_mem_fill(address, length, &pattern, 1);
}

static inline hipError_t hipMemcpy(void *dst, const void *src, size_t length,
                                   int)
{
    return ucx_gaudi_mem_copy(dst, src, length);
}

/* The copies above end before they return. */
static inline hipError_t hipDeviceSynchronize()
{
    return UCS_OK;
}

/* Gaudi memory is never also the host's, nor allocated by rows. */

static inline hipError_t hipMallocManaged(void **, size_t)
{
    return UCS_ERR_UNSUPPORTED;
}

static inline hipError_t hipPointerGetAttributes(hipPointerAttribute_t *,
                                                 void *)
{
    return UCS_ERR_UNSUPPORTED;
}

static inline hipError_t hipDeviceGetAttribute(int *, int, int)
{
    return UCS_ERR_UNSUPPORTED;
}

#endif
