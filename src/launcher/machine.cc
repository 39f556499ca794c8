#include "launcher/machine.h"

#include <fstream>

namespace launcher {

std::string read_word(const std::string &file)
{
    std::ifstream stream(file);
    std::string word;
    stream >> word;
    return word;
}

} // namespace launcher
