#include "hlthunk_emulator/box.h"

#include "hlthunk_emulator/abstract_name.h"
#include "hlthunk_emulator/settings.h"
#include "util/unique_fd.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

/* Buses of the cards of an eight-card box; further cards repeat them in
 * another PCI domain. */
constexpr unsigned buses[] = {0x19, 0x1a, 0x33, 0x34, 0xb3, 0xb4, 0xcc, 0xcd};
constexpr unsigned cards_per_domain = sizeof(buses) / sizeof(buses[0]);

/* How long a turn is waited for: it takes as long as reading /proc. */
constexpr std::chrono::seconds longest_turn{10};

/* In a folder of the user's: the file that is locked while somebody has a thing
 * of the box. The lock belongs to the opening of the file, and goes with it. */
util::unique_fd open_lock(const std::string &what)
{
    const std::string path = get_settings().folder + '/' + what;
    return util::unique_fd(
        open(path.c_str(),
             O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
}

flock whole_file()
{
    flock lock{};
    lock.l_type   = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return lock;
}

int take_lock(const std::string &what)
{
    util::unique_fd fd = open_lock(what);
    flock lock         = whole_file();
    if (!fd || (fcntl(fd.get(), F_OFD_SETLK, &lock) != 0)) {
        return ((errno == EAGAIN) || (errno == EACCES)) ? -EBUSY : -errno;
    }
    return fd.release();
}

bool is_locked(const std::string &what)
{
    const util::unique_fd fd = open_lock(what);
    flock lock               = whole_file();
    return fd && (fcntl(fd.get(), F_OFD_GETLK, &lock) == 0) &&
           (lock.l_type != F_UNLCK);
}

/* Say who has a thing of the box who cannot be of this box. */
void complain_of_stranger(const std::string &what)
{
    static std::atomic<bool> said{false};
    if (said || !get_settings().folder.empty()) {
        return;
    }
    const abstract_name name(what);
    const auto user = find_binder(name);
    if (user.has_value() && (*user != geteuid()) && !said.exchange(true)) {
        std::fprintf(stderr,
                     "hlthunk-emu: user %u has taken the name @%s, which this "
                     "user's box needs; HLTHUNK_EMU_NODE=FOLDER, a folder that "
                     "only you may write to, is a box that nobody else can "
                     "take from\n",
                     *user, name.text());
    }
}

/* Take a thing of the box. */
int take(const std::string &what)
{
    if (!get_settings().folder.empty()) {
        return take_lock(what);
    }
    const abstract_name name(what);
    util::unique_fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || (bind(fd.get(), name.address(), name.length()) != 0)) {
        return (errno == EADDRINUSE) ? -EBUSY : -errno;
    }
    return fd.release();
}

std::string card_name(unsigned index)
{
    return "accel" + std::to_string(index);
}

} // namespace

std::string bus_id_of(unsigned index)
{
    char text[32];
    std::snprintf(text, sizeof(text), "%04x:%02x:00.0",
                  index / cards_per_domain, buses[index % cards_per_domain]);
    return text;
}

unsigned module_id_of(unsigned index)
{
    return index;
}

int index_of_bus_id(const char *bus_id)
{
    std::string full(bus_id);
    if (full.size() == 7) {
        full.insert(0, "0000:");
    }
    for (unsigned i = 0; i < get_settings().devices; ++i) {
        if (full == bus_id_of(i)) {
            return static_cast<int>(i);
        }
    }
    return -1;
}

int take_card(unsigned index)
{
    const int ret = take(card_name(index));
    if (ret == -EBUSY) {
        complain_of_stranger(card_name(index));
    }
    return ret;
}

int take_turn()
{
    using clock         = std::chrono::steady_clock;
    const auto deadline = clock::now() + longest_turn;
    for (;;) {
        const int ret = take("turn");
        if (ret != -EBUSY) {
            return ret;
        }
        if (clock::now() >= deadline) {
            complain_of_stranger("turn");
            return ret;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

bool card_is_taken(unsigned index)
{
    if (!get_settings().folder.empty()) {
        return is_locked(card_name(index));
    }
    const util::unique_fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const abstract_name name(card_name(index));
    /* Of datagram sockets: the holder does not notice. */
    return fd && (connect(fd.get(), name.address(), name.length()) == 0);
}

} // namespace gaudi::emu
