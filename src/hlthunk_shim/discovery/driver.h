/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A driver library, which one UCX_GAUDI_DRIVER means, and how its cards are
 * opened: by what is to drive them.
 *
 * Any thread. What it gives out refers to it.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/hlthunk/library.h"

#include <memory>
#include <string>

namespace gaudi::shim {

struct driver_choice {
    enum class outcome {
        library, /**< load @ref path */
        no_card, /**< nobody asked for a library, and there is no card */
        invalid  /**< the text means nothing */
    };

    outcome result = outcome::invalid;
    std::string path; /**< a file, or a bare name for the loader to find */
};

/** What the text has to be, for messages. */
inline constexpr char driver_syntax[] =
    "auto, hlthunk, emulator, or the path of a library";

/**
 * Read UCX_GAUDI_DRIVER.
 *
 * @param text       Its value.
 * @param directory  Where the module lies: the emulator is beside it.
 * @param dev        Where device nodes are.
 */
driver_choice choose_driver(const std::string &text,
                            const std::string &directory,
                            const std::string &dev = "/dev");

/** What copies are given to. */
enum class engine {
    automatic, /**< SynapseAI if it has the card, else submissions */
    cs,        /**< command submissions through hl-thunk */
    synapse    /**< SynapseAI, which is started if the process has not */
};

struct driver_options {
    engine used = engine::automatic;
    /** Have SynapseAI map host memory of the application, too. */
    bool map_application_memory = false;
    /** Cards whose ids and names are not known are taken for those of this one,
     *  UCX_GAUDI_CARD_KIND; invalid: they are refused. */
    hlthunk_device_name unknown_card = HLTHUNK_DEVICE_INVALID;
};

class driver : library {
public:
    explicit driver(const std::string &path, const driver_options &options = {})
        : library(path, options.unknown_card), options_(options)
    {}

    using library::handle;
    using library::path;
    using library::reason;
    using library::redirect;
    using library::was_loaded;

    /** Its table: for the shim, and tests. */
    [[nodiscard]] const library &lib() const { return *this; }

    /** The file that was loaded. */
    [[nodiscard]] std::string file() const;

    /**
     * Open a card.
     *
     * @param bus_id  "dddd:bb:dd.f".
     * @param card_p  Filled on success only.
     * @return 0, or -errno: -EBUSY when somebody has the card open, -EAGAIN
     *         during a reset, -EINVAL for an unknown bus id, -ENOTSUP for a
     *         card that takes no work so, see why_refused in card_info.h.
     */
    [[nodiscard]] int open(const std::string &bus_id,
                           std::unique_ptr<card> &card_p) const;

    /**
     * Use a card that the application has open, and never close it.
     *
     * @param fd  Of its compute node; one of something else is refused.
     *            One of a card that SynapseAI has acquired stands for that
     *            one's, which is used.
     * @return As @ref open; -EINPROGRESS while SynapseAI is acquiring it: it
     *         can be adopted after a later @ref look_for_frameworks.
     */
    [[nodiscard]] int adopt(int fd, std::unique_ptr<card> &card_p) const;

    /** What copies are given to. */
    [[nodiscard]] engine used() const { return options_.used; }

    /** What to do about a card that takes work through SynapseAI alone and is
     *  refused.
     *  @param used  What copies are given to. */
    [[nodiscard]] static const char *how_to_use_synapse(engine used);

    /** Load SynapseAI, if this process has not, as an open by it does.
     *  @return Why it cannot be used so; empty: it can. */
    [[nodiscard]] static std::string why_no_synapse();

    /** Why a card of a kind that is known was refused with -ENOTSUP, and what
     *  to do. */
    [[nodiscard]] std::string why_not_supported() const;

    /* --- frameworks, which acquire a card through SynapseAI ----------------*/

    /** Whether code is a framework's runtime, by which it opens cards. */
    [[nodiscard]] static bool is_framework(const void *code);

    /** Whether this thread is in a call of ours into that runtime: what is
     *  opened and closed in it is not the application's. */
    [[nodiscard]] static bool is_in_own_call();

    /** A framework has opened a card, and is acquiring it. */
    void framework_opened(int fd) const;

    /** The application, or a framework, closes a descriptor. */
    void application_closing(int fd) const;

    /** Whether cards that a framework has acquired are driven through it. */
    [[nodiscard]] bool drives_frameworks() const
    {
        return options_.used != engine::cs;
    }

    /** See which card the framework of the process has by now. Calls into it:
     *  without locks, and not from what it calls itself. */
    void look_for_frameworks() const;

    /** Names the box that the cards are in; empty: this machine, whose kernel
     *  knows them. */
    [[nodiscard]] std::string box_name() const { return say(hlthunk_sys_box); }

    /** Root of the sysfs that shows the cards; empty: none does.
     *  @param sys  That of this machine. */
    [[nodiscard]] std::string sysfs(const std::string &sys) const
    {
        return (hlthunk_sys_sysfs != nullptr) ? say(hlthunk_sys_sysfs) : sys;
    }

    /** Where the files of the cards are, if they are not device files in /dev:
     *  the folder in their names, as /proc/PID/fd has them; else empty. */
    [[nodiscard]] std::string own_dev() const { return say(hlthunk_sys_dev); }

private:
    /* What an extension of the library says; empty when it has none. */
    [[nodiscard]] static std::string say(const char *(*extension)())
    {
        const char *text = (extension != nullptr) ? extension() : nullptr;
        return (text != nullptr) ? text : "";
    }
    [[nodiscard]] int open_by_synapse(const std::string &bus_id,
                                      std::unique_ptr<card> &card_p) const;

    const driver_options options_;
};

} // namespace gaudi::shim
