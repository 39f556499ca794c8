/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * HCL as far as SynapseAI starts it when it acquires a card (hcclInitDevice,
 * from device_scal.cpp of HabanaAI/Intel_Gaudi3_Software): it opens the card's
 * verbs device, which nobody else can then, unless INIT_HCCL_ON_ACQUIRE=false
 * and, since that is private, ENABLE_EXPERIMENTAL_FLAGS=true.
 */
#pragma once

#include <memory>

struct ibv_context;

namespace gaudi::test {

struct close_verbs {
    void operator()(ibv_context *context) const;
};
using verbs_device = std::unique_ptr<ibv_context, close_verbs>;

/** @param fd  Of the card. @return nullptr: it does not start, or the card has
 *             no ports. */
verbs_device start_hcl(int fd);

} // namespace gaudi::test
