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

std::string to_printable(std::string text)
{
    /* Bytes from 0x80 on are letters of some other script. */
    for (char &letter : text) {
        const auto code = static_cast<unsigned char>(letter);
        if ((code < ' ') || (code == 0x7f)) {
            letter = '?';
        }
    }
    return text;
}

} // namespace launcher
