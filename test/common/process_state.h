/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What /proc says about this process.
 */
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace gaudi::test {

/** Open file descriptors. */
unsigned count_open_fds();

/** Memory mappings, as /proc/self/maps has them; with a text, of lines with it,
 *  a file's name for instance: allocators make and drop some of their own. */
unsigned count_mappings(const std::string &of = {});

/** Threads with this name. */
std::vector<pid_t> threads_named(const std::string &name);
unsigned count_threads(const std::string &name);

/** Wait a moment until all other threads sleep: a child that is forked while
 * one of them is in mmap finds UCM's lock taken (ucm_event_enter), for ever. */
void let_threads_sleep();

/** The text of a file; empty when it cannot be read. */
std::string read_file(const std::string &path);

/** Whether a directory has an entry whose name contains a text. */
bool directory_mentions(const std::string &path, const std::string &text);

/**
 * Look at a condition until it holds.
 *
 * @return false when it does not within thirty seconds.
 */
bool eventually(const std::function<bool()> &condition);

/** Whether a thread, or the first of a process, sleeps in the kernel. */
bool is_asleep(pid_t thread);

/** The same at many looks in a row: it waits for somebody. */
bool is_blocked(pid_t thread);
bool are_blocked(const std::vector<pid_t> &threads);

} // namespace gaudi::test
