#include "util/text.h"

namespace gaudi::util {

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

} // namespace gaudi::util
