/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Processes with namespaces of their own, as the containers of pods are.
 *
 * For the bodies of children, before there are locks that other threads may
 * have; the process that was started ends with the one that goes on.
 */
#pragma once

#include "common/child.h"

#include <string>

#include <sched.h>

namespace gaudi::test {

/** What two pods have of their own. */
inline constexpr int pod_namespaces = CLONE_NEWPID | CLONE_NEWNET |
                                      CLONE_NEWIPC | CLONE_NEWUTS |
                                      CLONE_NEWNS | CLONE_NEWUSER;

/** Children in whose environment this is set are pods, see @ref enter_pod. */
inline constexpr char pod_variable[] = "GAUDI_TEST_POD";

/** A child, and those that it starts, as pods of one node with a folder and a
 *  box of cards. */
child_options as_pods(child_options options = {});

/** Go on as a child that was made; else end as it does. */
bool go_on_as_child(long child);

/** Go on in a process that has namespaces of its own. Not by unshare, which
 *  fails beside the thread that ThreadSanitizer has. */
bool enter_namespaces(long flags);

bool write_text(const char *path, const std::string &text);

/** In a new user namespace: be this user there, who is that one outside. */
bool map_user(const std::string &inside, unsigned user = 0, unsigned group = 0);

/** Go on in a pod, as the same user. */
bool enter_pod();

} // namespace gaudi::test
