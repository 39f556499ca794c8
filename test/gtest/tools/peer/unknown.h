/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Keys as a serving system may be given them by a peer that it should not
 * believe: damaged on their way, or of memory and processes that are no more.
 */
#pragma once

#include "gtest/tools/peer/cache.h"

#include <vector>

namespace peer {

/** Write all blocks there. Dies unless that is refused. It writes, since the
 * new protocols of UCX 1.13 end the process when a read is refused. */
void expect_refused(connection &to, const cache &mine,
                    const remote_cache &theirs);

/**
 * Unpack the keys with each of them damaged where it is gaudi_ipc's: @a cuts
 * times its last bytes are missing (zero), and @a cuts times a bit is another.
 * Dies when UCP believes all of them.
 *
 * What is UCP's in a key cannot be tried: ucp_ep_rkey_unpack is not told how
 * long a key is, and believes each number in it; so it is with a worker's
 * address. Nor can such a key be used: where UCP unpacks it without the part
 * that gaudi_ipc refused, its old protocols have the owner's CPU read device
 * memory, and its new ones end the process. What gaudi_ipc says to each damage
 * is in gtest/ipc/test_key_format.cc.
 */
void try_damaged(const connection &to, const std::vector<description> &keys,
                 size_t cuts);

/** Unpack keys of a process that is no peer, while it lives and after, and
 *  write by them once it has ended. Dies unless the writes are refused. */
void try_stranger(connection &to, const cache &mine);

/** What that process does, started with the words "stranger", the kind of its
 *  memory, and the number and the size of its blocks. */
[[noreturn]] void be_stranger(char **words);

} // namespace peer
