/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A second process of a benchmark, and the socket to it.
 */
#pragma once

#include <cstddef>

namespace gaudi::bench {

/** Start it: a child that runs @a be with its end of the socket, and ends with
 *  this process. Before this one has threads. Ends the program on failure.
 *  @return This process's end. */
int start_other_process(void (*be)(int socket));

/** All of it; end the program when the other process is gone. */
void send_all(int to, const void *data, size_t size);
void receive_all(int from, void *data, size_t size);

} // namespace gaudi::bench
