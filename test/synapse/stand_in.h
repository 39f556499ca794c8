/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A libSynapse.so for tests: SynapseAI's public ABI, on a card of the software
 * Gaudi.
 *
 * It opens a card by hl-thunk, takes all of its memory as one block, gives that
 * out in parts, and copies with hlthunk_emu_copy, as SCAL runs the engines
 * itself. Statuses, and what is asked of arguments, are those of the runtime's
 * source for 1.16 (synapse/src/runtime in HabanaAI/Intel_Gaudi3_Software):
 * there is one device per process, whose id is 0 and never looked at; nothing
 * is counted; a device address is not looked at, either.
 *
 * Calls in which a framework's other threads would wait, as those that
 * synchronise, are not there: nobody may need them. What SynapseAI does not
 * have, for tests, is below.
 */
#pragma once

#include "hlthunk_shim/abi/synapse.h"

#pragma GCC visibility push(default)

extern "C" {

/** In libscal.so: the card of a descriptor, -1: none. */
void scal_stand_in_set(int fd, const scal_memory_pool_infoV2 *pool);

/** Be as a device in reset: events stay busy for ever. */
void syn_stand_in_reset(void);

/** Leave out what synDeviceGetInfoV2 does not fill before 1.18. */
void syn_stand_in_be_old(bool old);

/** Have the next copies refused with a status. */
void syn_stand_in_refuse_copies(unsigned count, synStatus status);

/** How many more events it has room for; SIZE_MAX: as many as one likes. */
void syn_stand_in_limit_events(size_t more);

/** Mappings of host memory that there are. */
unsigned syn_stand_in_mappings(void);

/** Streams that there are. */
unsigned syn_stand_in_streams(void);
}

#pragma GCC visibility pop
