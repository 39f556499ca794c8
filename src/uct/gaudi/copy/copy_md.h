/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory domain of component gaudi_copy: allocation, registration, detection.
 *
 * Everything it hands out lives in the memory map of the process; the domain is
 * one user of its cards. Any thread.
 */
#pragma once

#include "uct/gaudi/base/memory/registration_cache.h"
#include "uct/gaudi/base/ucx/memory_domain.h"

namespace gaudi::copy {

/** See base/ucx/memory_domain.h for what its functions are for. A handle of it
 *  is a base::memory_handle. */
class memory_domain : public base::memory_domain {
public:
    static constexpr char name[]      = "gaudi_copy";
    static constexpr char title[]     = "Gaudi copy memory domain";
    static constexpr char prefix[]    = "GAUDI_COPY_";
    static constexpr bool comes_first = true;
    struct config {
        uct_md_config_t super;
        base::registration_cache::settings registrations;
    };
    static ucs_config_field_t config_table[];

    /** Whether there is a card, be it in use. */
    static bool is_available();

    /** Opens the cards, and the cache of registrations. With no card that can
     *  be had it is there all the same, for memory of one that this process
     *  opens later. */
    static ucs_status_t open(const config &config,
                             std::unique_ptr<memory_domain> &domain_p);
    void close();

    void query(base::md_properties &properties) const;

    /** Device memory, on the card of a system device, or else that the address
     *  hints at. Without a card it tries to open one, or says why there is
     *  none.
     *  @param[in,out] address  NULL, or in or near memory of that card. */
    ucs_status_t allocate(size_t &length, void *&address,
                          ucs_memory_type_t type, ucs_sys_device_t device,
                          bool quiet, uct_mem_h &memh_p);
    ucs_status_t free(uct_mem_h memh);

    /** Map host memory on all cards if it will be needed. */
    ucs_status_t advise(uct_mem_h memh, void *address, size_t length,
                        unsigned advice);

    /** Host memory, or a part of an allocation of device memory. */
    ucs_status_t register_memory(void *address, size_t length, bool quiet,
                                 uct_mem_h &memh_p);
    ucs_status_t deregister(uct_mem_h memh, uct_completion_t *invalidated);

    /** Every device address is Gaudi memory, in an allocation or not. But while
     *  UCX's own module has a card for itself, what is not known here is
     *  UCS_ERR_INVALID_ADDR: that module knows what it has there. */
    ucs_status_t describe(const void *address, size_t length,
                          base::memory_description &memory_p);
    ucs_status_t export_dmabuf(const void *address, size_t length, int &fd_p,
                               size_t &offset_p);
    ucs_status_t detect(const void *address, ucs_memory_type_t &type_p);

    void add_files(void *object);

private:
    base::registration_cache &registrations_ =
        base::registration_cache::instance();
    base::held_cards cards_; /* of which there may be none so far */
    std::atomic<uint64_t> allocations_{0};
};

/** Add the component to UCX's list. Called once, at load. */
void register_component();

} // namespace gaudi::copy
