/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How the programs of this folder end when something is wrong: at once, with a
 * line on stderr and exit code 1.
 */
#pragma once

#include <string>

#include <ucs/type/status.h>

namespace peer {

/** Call first. The program ends by a signal after so many seconds. */
void start_program(unsigned life_s);

[[noreturn]] void die(const std::string &what, const std::string &why);

void require(ucs_status_t status, const std::string &what);

/** What is being done, for the line on stderr. Each thread has its own. */
void set_case(std::string text);

} // namespace peer
