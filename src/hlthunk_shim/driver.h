/**
 * What is asked of a driver library as a whole: which cards there are, and to
 * open one.
 *
 * Owns the library. Any thread. What it gives out refers to it.
 */
#pragma once

#include "hlthunk_shim/card.h"

#include <memory>
#include <string>

namespace gaudi::shim {

class library;

class driver {
public:
    /** Load the library.
     *  @param path  A file, or a bare name for the loader to find. */
    explicit driver(const std::string &path);
    ~driver();

    /** Why it cannot be used; empty when it can. */
    [[nodiscard]] const std::string &reason() const;

    /** What was asked for at construction. */
    [[nodiscard]] const std::string &path() const;

    /** Its table: for what is about the library itself. */
    [[nodiscard]] library &lib() const { return *lib_; }

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

    /** The kinds of cards that the transports can use, as "Gaudi2". */
    [[nodiscard]] static std::string supported_kinds();

private:
    std::unique_ptr<library> lib_;
};

} // namespace gaudi::shim
