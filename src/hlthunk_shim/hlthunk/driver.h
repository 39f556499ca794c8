/**
 * What is asked of a driver library as a whole: which cards there are, and to
 * open one.
 *
 * Owns the library. Any thread. What it gives out refers to it.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/hlthunk/library.h"

#include <memory>
#include <string>

namespace gaudi::shim {

class driver {
public:
    /** Load it, see library. */
    explicit driver(const std::string &path) : lib_(path) {}

    /** Its table: for what is about the library itself, and for this folder
     *  and cards/. */
    [[nodiscard]] library &lib() { return lib_; }
    [[nodiscard]] const library &lib() const { return lib_; }

    /** The file that was loaded. */
    [[nodiscard]] std::string file() const;

    /**
     * Open a card.
     *
     * @param bus_id  "dddd:bb:dd.f".
     * @param card_p  Filled on success only.
     * @return 0, or -errno: -EBUSY when somebody has the card open, -EAGAIN
     *         during a reset, -EINVAL for an unknown bus id.
     */
    [[nodiscard]] int open(const std::string &bus_id,
                           std::unique_ptr<card> &card_p) const;

    /**
     * Use a card that the application has open, and never close it.
     *
     * @param fd  Of its compute node; one of something else is refused.
     * @return As @ref open.
     */
    [[nodiscard]] int adopt(int fd, std::unique_ptr<card> &card_p) const;

    /** Names the box that the cards are in; empty: this machine, whose kernel
     *  knows them. */
    [[nodiscard]] std::string box_name() const;

    /** Root of the sysfs that shows the cards; empty: none does.
     *  @param sys  That of this machine. */
    [[nodiscard]] std::string sysfs(const std::string &sys) const;

    /** Where the files of the cards are, if they are not device files in /dev:
     *  the folder in their names, as /proc/PID/fd has them; else empty. */
    [[nodiscard]] std::string own_dev() const;

private:
    library lib_;
};

} // namespace gaudi::shim
