/**
 * The environment in which a program finds the transports.
 */
#pragma once

#include <string>

namespace launcher {

/**
 * Change this process's environment for the program that it becomes.
 *
 * @param emulate  Use the software Gaudi.
 * @param cards    Cards of its box; 0 leaves that to the environment.
 * @param error    Says why, when the result is false.
 */
bool set_environment(bool emulate, unsigned cards, std::string &error);

} // namespace launcher
