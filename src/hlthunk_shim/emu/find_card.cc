#include "hlthunk_shim/emu/find_card.h"

#include "hlthunk_shim/emu/device_files.h"
#include "hlthunk_shim/emu/settings.h"

namespace gaudi::emu {

namespace {

/* What a descriptor that is not known is: perhaps a duplicate of a compute
 * node. */
device_file look_up(int fd)
{
    const device_file known = device_file_at(fd);
    if ((known.kind != file_of::nothing) || (fd < 0)) {
        return known;
    }
    for (unsigned i = 0; i < get_settings().devices; ++i) {
        if (card::at(i).recognize(fd)) {
            break;
        }
    }
    return device_file_at(fd);
}

} // namespace

card *find_compute(int fd)
{
    const device_file file = look_up(fd);
    return (file.kind == file_of::compute) ? &card::at(file.card) : nullptr;
}

card *find_any(int fd)
{
    const device_file file = look_up(fd);
    return ((file.kind == file_of::compute) || (file.kind == file_of::control))
               ? &card::at(file.card)
               : nullptr;
}

card *find_inherited(int fd)
{
    const device_file file = device_file_at(fd);
    return (file.kind == file_of::inherited) ? &card::at(file.card) : nullptr;
}

int why_no_card(int fd)
{
    const card *inherited = find_inherited(fd);
    if (inherited == nullptr) {
        return -EBADF;
    }
    log("accel%u: file descriptor %d is of the process that forked this one, "
        "and only of use there",
        inherited->index(), fd);
    return -ENODEV;
}

} // namespace gaudi::emu
