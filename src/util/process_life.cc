#include "util/process_life.h"

#include "util/errors.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gaudi::util {

uint64_t process_start_time(uint32_t pid)
{
    constexpr unsigned wanted = 22;

    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    const unique_fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) {
        return may_pass(errno) ? unknown_start_time : 0;
    }
    char text[1024];
    const ssize_t length = read(fd.get(), text, sizeof(text) - 1);
    if (length <= 0) {
        return ((length == 0) || (errno == ESRCH)) ? 0 : unknown_start_time;
    }
    text[length] = '\0';
    /* The second field is the program's name in parentheses, whatever that
     * contains. */
    std::string_view rest(text, static_cast<size_t>(length));
    size_t position = rest.rfind(')');
    for (unsigned field = 2; field < wanted; ++field) {
        position = rest.find(' ', position);
        if (position == std::string_view::npos) {
            return 0;
        }
        ++position;
    }
    return std::strtoull(rest.data() + position, nullptr, 10);
}

unique_fd open_pidfd(uint32_t pid)
{
    return unique_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool has_ended(int pidfd)
{
    pollfd ended{pidfd, POLLIN, 0};
    int count;
    do {
        count = poll(&ended, 1, 0);
    } while ((count < 0) && (errno == EINTR));
    return count > 0;
}

bool process_has_ended(uint64_t word)
{
    const auto pid       = static_cast<uint32_t>(word);
    const uint64_t start = process_start_time(pid);
    if ((start != 0) && (start != unknown_start_time) &&
        (process_word(pid, start) != word)) {
        return true; /* the pid is another one's */
    }
    const unique_fd pidfd = open_pidfd(pid);
    if (pidfd) {
        return has_ended(pidfd.get());
    }
    return (errno == ESRCH) || (errno == EINVAL /* no pid */) ||
           ((kill(static_cast<pid_t>(pid), 0) != 0) && (errno == ESRCH));
}

} // namespace gaudi::util
