/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/check.h"

#include <cstdio>
#include <cstdlib>

#include <unistd.h>

namespace peer {

namespace {

thread_local std::string current_case;

} // namespace

void start_program(unsigned life_s)
{
    alarm(life_s);
    set_case("the start");
}

void die(const std::string &what, const std::string &why)
{
    std::fprintf(stderr, "wrong: %s: %s: %s\n", current_case.c_str(),
                 what.c_str(), why.c_str());
    /* Without destructors: other threads are in the midst of UCP. */
    _exit(1);
}

void require(ucs_status_t status, const std::string &what)
{
    if (status != UCS_OK) {
        die(what, ucs_status_string(status));
    }
}

void set_case(std::string text)
{
    current_case = std::move(text);
}

} // namespace peer
