/**
 * Text from outside, made fit for one line of a message.
 */
#pragma once

#include <string>

namespace gaudi::util {

/** The same text with '?' for what would disturb a line. */
std::string to_printable(std::string text);

} // namespace gaudi::util
