#include "launcher/holders.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

namespace launcher {

namespace {

namespace fs = std::filesystem;

constexpr char emulated[] = "/memfd:hlthunk-emu/";

bool is_node(const std::string &path)
{
    return path.starts_with("/dev/accel/accel") ||
           path.starts_with("/dev/hl") || path.starts_with(emulated);
}

std::string first_line(const fs::path &file)
{
    std::ifstream stream(file);
    std::string line;
    std::getline(stream, line);
    return line;
}

bool parse_pid(const std::string &text, pid_t &pid)
{
    const char *end   = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, pid);
    return (parsed.ec == std::errc()) && (parsed.ptr == end);
}

void add_process(const fs::path &directory, pid_t pid, holders &found)
{
    std::error_code error;
    for (fs::directory_iterator entry(directory / "fd", error), end;
         !error && (entry != end); entry.increment(error)) {
        std::error_code gone;
        const std::string path = fs::read_symlink(entry->path(), gone).string();
        if (gone || !is_node(path)) {
            continue;
        }
        std::vector<holder> &of_node = found[path];
        struct stat info;
        if ((!of_node.empty() && (of_node.back().pid == pid)) ||
            (stat(directory.c_str(), &info) != 0)) {
            continue;
        }
        of_node.push_back({pid, info.st_uid, first_line(directory / "comm")});
    }
}

} // namespace

holders find_holders(const std::string &proc)
{
    std::vector<pid_t> pids;
    std::error_code error;
    for (fs::directory_iterator entry(proc, error), end;
         !error && (entry != end); entry.increment(error)) {
        pid_t pid;
        if (parse_pid(entry->path().filename().string(), pid) &&
            (pid != getpid())) {
            pids.push_back(pid);
        }
    }
    std::sort(pids.begin(), pids.end());

    holders found;
    for (const pid_t pid : pids) {
        add_process(fs::path(proc) / std::to_string(pid), pid, found);
    }
    return found;
}

std::vector<std::string> node_paths(const std::string &dev, int node)
{
    const std::string number = std::to_string(node);
    return {dev + "/accel/accel" + number, dev + "/hl" + number};
}

std::string emulated_node_path(const std::string &box, int node)
{
    return emulated + box + "/accel" + std::to_string(node) + " (deleted)";
}

std::string describe(const std::vector<holder> &all)
{
    std::string text;
    for (const holder &one : all) {
        text += text.empty() ? "pid " : ", pid ";
        text += std::to_string(one.pid) + " (" + one.program + ")";
    }
    return text;
}

} // namespace launcher
