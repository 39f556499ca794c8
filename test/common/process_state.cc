/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/process_state.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

namespace gaudi::test {

namespace fs = std::filesystem;

unsigned count_open_fds()
{
    const auto entries = fs::directory_iterator("/proc/self/fd");
    /* One of them is the iterator's. */
    return static_cast<unsigned>(std::distance(begin(entries), end(entries))) -
           1;
}

unsigned count_mappings(const std::string &of)
{
    std::istringstream maps(read_file("/proc/self/maps"));
    unsigned count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += (line.find(of) != std::string::npos);
    }
    return count;
}

std::vector<pid_t> threads_named(const std::string &name)
{
    std::vector<pid_t> found;
    for (const auto &entry : fs::directory_iterator("/proc/self/task")) {
        if (read_file(entry.path().string() + "/comm") == name + "\n") {
            found.push_back(std::stoi(entry.path().filename().string()));
        }
    }
    return found;
}

unsigned count_threads(const std::string &name)
{
    return static_cast<unsigned>(threads_named(name).size());
}

void let_threads_sleep()
{
    const auto is_awake = [](const fs::directory_entry &thread) {
        const std::string name = thread.path().filename().string();
        const std::string stat = read_file(thread.path().string() + "/stat");
        const size_t state     = stat.rfind(')') + 2;
        return (name != std::to_string(gettid())) && (state < stat.size()) &&
               (stat[state] != 'S');
    };
    for (unsigned quiet = 0, looks = 0; (quiet < 3) && (looks < 500); ++looks) {
        const fs::directory_iterator threads("/proc/self/task");
        quiet =
            std::any_of(begin(threads), end(threads), is_awake) ? 0 : quiet + 1;
        usleep(1000);
    }
}

std::string read_file(const std::string &path)
{
    /* Not a stream: those throw when a thread ends while its file is read. */
    std::string text;
    char part[4096];
    ssize_t count;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    while ((count = read(fd, part, sizeof(part))) > 0) {
        text.append(part, static_cast<size_t>(count));
    }
    if (fd >= 0) {
        close(fd);
    }
    return text;
}

bool directory_mentions(const std::string &path, const std::string &text)
{
    std::error_code ignored;
    for (const auto &entry : fs::directory_iterator(path, ignored)) {
        if (entry.path().filename().string().find(text) != std::string::npos) {
            return true;
        }
    }
    return false;
}

bool eventually(const std::function<bool()> &condition)
{
    using clock         = std::chrono::steady_clock;
    const auto start    = clock::now();
    const auto soon     = start + std::chrono::milliseconds(1);
    const auto deadline = start + std::chrono::seconds(30);
    while (!condition()) {
        const auto now = clock::now();
        if (now >= deadline) {
            return false;
        }
        if (now < soon) {
            std::this_thread::yield();
        } else {
            /* It takes others some time, and the processors are theirs. */
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }
    return true;
}

bool is_asleep(pid_t thread)
{
    const std::string stat =
        read_file("/proc/" + std::to_string(thread) + "/stat");
    /* "pid (name) state": the name may hold anything but ends last. */
    const size_t end = stat.rfind(") ");
    return (end != std::string::npos) && (stat[end + 2] == 'S');
}

bool are_blocked(const std::vector<pid_t> &threads)
{
    return std::all_of(threads.begin(), threads.end(), is_blocked);
}

bool is_blocked(pid_t thread)
{
    for (int i = 0; i < 100; ++i) {
        if (!is_asleep(thread)) {
            return false;
        }
    }
    return true;
}

} // namespace gaudi::test
