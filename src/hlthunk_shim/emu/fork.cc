#include "hlthunk_shim/emu/fork.h"

#include "hlthunk_shim/emu/card.h"
#include "hlthunk_shim/emu/device_files.h"
#include "hlthunk_shim/emu/engine_threads.h"
#include "hlthunk_shim/emu/settings.h"
#include "util/fork_handlers.h"

#include <new>

namespace gaudi::emu {

namespace {

/* The compute nodes that are known are the parent's. */
void inherit_device_files()
{
    for (int fd = 0; fd < device_files_end(); ++fd) {
        const device_file file = device_file_at(fd);
        if (file.kind != file_of::compute) {
            continue;
        }
        if (card::at(file.card).is_inherited(fd)) {
            (void)add_device_file(fd, {file_of::inherited, file.card});
        } else {
            remove_device_file(fd);
        }
    }
}

void after_in_child()
{
    engine_threads::instance().after_fork_in_child();
    for (unsigned i = 0; i < max_cards; ++i) {
        card::at(i).after_fork_in_child();
    }
    inherit_device_files();
}

} // namespace

void prepare_for_fork()
{
    /* Now, and not for the first time in a handler. */
    engine_threads::instance();
    card::at(0);

    static const bool prepared = util::run_in_children(after_in_child);
    if (!prepared) {
        throw std::bad_alloc();
    }
}

} // namespace gaudi::emu
