/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The record of rules of the kernel that were broken: what it refuses, and what
 * no correct program does. The first time that a process breaks one, a line
 * with the rule, what was asked and the command line of the process is added to
 * the file that KERNEL_DOUBLE_REPORT names, or written to stderr. Any thread.
 */
#pragma once

namespace gaudi::kernel_double {

/** A rule was broken. */
void report(const char *rule, const char *what);

} // namespace gaudi::kernel_double
