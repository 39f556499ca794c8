/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/trace_file.h"

#include "hlthunk_emulator/file_lock.h"
#include "util/file_mapping.h"
#include "util/text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

constexpr std::string_view head = "[\n";
constexpr std::string_view end  = "]\n";
/* Gathered before they are written: what a process that is killed may lose. */
constexpr size_t gathered_bytes = 65536;
constexpr std::chrono::seconds longest_gathering{1};

/* Bytes of the file that are locked, far behind its end: one by all who write,
 * one by who is writing right now. */
constexpr off_t lock_of_run     = off_t{1} << 62;
constexpr off_t lock_of_writing = lock_of_run + 1;

/* How long others may write. Who locks the file for longer is no emulator. */
constexpr std::chrono::seconds longest_turn{5};

int wait_for_lock(int fd, short type, off_t byte)
{
    return wait_while_busy(longest_turn,
                           [=] { return set_lock(fd, type, byte); });
}

/* Whether a file can become a trace: it is empty, or has been one. Nobody's
 * work is to be lost by a wrong name. */
bool may_become_trace(int fd)
{
    char begin[3];
    const ssize_t got = pread(fd, begin, sizeof(begin), 0);
    if (got < 0) {
        return false;
    }
    /* Less is left by a process that was killed as it began or went on. */
    const std::string_view text(begin, static_cast<size_t>(got));
    return std::string_view("[\n{").starts_with(text) ||
           std::string_view("[\n]").starts_with(text);
}

int write_all(int fd, std::string_view bytes)
{
    while (!bytes.empty()) {
        const ssize_t written = write(fd, bytes.data(), bytes.size());
        if (written > 0) {
            bytes.remove_prefix(static_cast<size_t>(written));
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

} // namespace

int why_no_trace(const std::string &path)
{
    struct stat info {};
    if (stat(path.c_str(), &info) == 0) {
        if (S_ISDIR(info.st_mode)) {
            return EISDIR;
        }
        if (!S_ISREG(info.st_mode)) {
            return EINVAL;
        }
        const util::unique_fd fd(
            ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
        if (!fd) {
            return errno;
        }
        return may_become_trace(fd.get()) ? 0 : EEXIST;
    }
    if (errno != ENOENT) {
        return errno;
    }
    const auto folder = std::filesystem::path(path).parent_path();
    return (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0)
               ? 0
               : errno;
}

std::string json_text(std::string text)
{
    for (char &letter : text) {
        if ((letter < ' ') || (letter > '~') || (letter == '\\')) {
            letter = '?';
        } else if (letter == '"') {
            letter = '\'';
        }
    }
    return text;
}

trace_file::trace_file(const std::string &path)
    : path_(path), process_(json_text(util::first_line("/proc/self/comm")) +
                            ' ' + std::to_string(getpid()))
{
    gathered_.reserve(gathered_bytes + 4096);
    const int ret = open();
    if (ret != 0) {
        give_up(-ret);
    }
}

int trace_file::open()
{
    fd_.reset(::open(path_.c_str(),
                     O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK,
                     0666));
    struct stat info {};
    if (!fd_ || (fstat(fd_.get(), &info) != 0)) {
        return -errno;
    }
    if (!S_ISREG(info.st_mode)) {
        return -EINVAL;
    }
    closed_in_children_ = util::closed_in_children(fd_.get());
    return begin_or_join();
}

/* Who is alone holds the lock for himself until the file has its head. */
int trace_file::begin_or_join()
{
    if (set_lock(fd_.get(), F_WRLCK, lock_of_run) == 0) {
        if (!may_become_trace(fd_.get())) {
            return -EEXIST;
        }
        if (ftruncate(fd_.get(), 0) != 0) {
            return -errno;
        }
        const int ret = write_all(fd_.get(), std::string(head).append(end));
        if (ret != 0) {
            return ret;
        }
    }
    return wait_for_lock(fd_.get(), F_RDLCK, lock_of_run);
}

void trace_file::give_up(int error)
{
    std::fprintf(stderr, "hlthunk-emu: HLTHUNK_EMU_TRACE='%s': %s; no %s\n",
                 path_.c_str(),
                 (error == EBUSY) ? "another process keeps it locked"
                                  : std::strerror(error),
                 gathered_.empty() ? "trace" : "further trace");
    good_               = false;
    closed_in_children_ = {};
    fd_.reset();
}

uint64_t trace_file::next_id()
{
    const std::lock_guard<std::mutex> guard(lock_);
    return (static_cast<uint64_t>(getpid()) << 32) | ++last_id_;
}

void trace_file::add(std::string_view lines)
{
    const std::lock_guard<std::mutex> guard(lock_);
    gathered_ += lines;
    if ((gathered_.size() >= gathered_bytes) ||
        (clock::now() - written_ >= longest_gathering)) {
        write_gathered();
    }
}

void trace_file::flush()
{
    const std::lock_guard<std::mutex> guard(lock_);
    write_gathered();
}

void trace_file::write_gathered()
{
    if (!gathered_.empty() && fd_) {
        const int ret = append();
        if (ret != 0) {
            give_up(-ret);
        }
    }
    gathered_.clear();
    written_ = clock::now();
}

int trace_file::append()
{
    const int locked = wait_for_lock(fd_.get(), F_WRLCK, lock_of_writing);
    if (locked != 0) {
        return locked;
    }
    struct stat info {};
    bool comma = false;
    int ret    = (fstat(fd_.get(), &info) == 0) ? 0 : -errno;
    if (ret == 0) {
        ret = cut_end(info.st_size, comma);
    }
    gathered_.replace(gathered_.size() - 2, 1, ""); /* the last comma */
    gathered_ += end;
    if (comma) {
        gathered_.insert(0, ",");
    }
    /* Beyond this a signal would end the process. */
    const bool fits = static_cast<size_t>(info.st_size) + gathered_.size() <=
                      util::longest_file();
    if (ret == 0) {
        ret = write_all(fd_.get(), fits ? gathered_ : end);
    }
    if ((ret == 0) && !fits) {
        ret = -EFBIG;
    }
    (void)set_lock(fd_.get(), F_UNLCK, lock_of_writing);
    return ret;
}

/* The end of the array, and the half line that a process has left that was
 * killed while it was writing. Then tell whether a comma has to come. */
int trace_file::cut_end(off_t length, bool &comma) const
{
    std::array<char, 4096> tail;
    std::string_view text;
    off_t begin = length;
    while ((begin > 0) && text.empty()) {
        const off_t behind =
            std::min<off_t>(length, begin + static_cast<off_t>(end.size()));
        begin = std::max<off_t>(0, behind - static_cast<off_t>(tail.size()));
        const ssize_t got = pread(fd_.get(), tail.data(),
                                  static_cast<size_t>(behind - begin), begin);
        if (got != behind - begin) {
            return (got < 0) ? -errno : -EIO;
        }
        text = {tail.data(), static_cast<size_t>(got)};
        text = text.substr(0, text.rfind('\n') + 1);
    }
    if (text.ends_with(std::string("\n").append(end))) {
        text.remove_suffix(end.size());
    }
    const off_t kept = begin + static_cast<off_t>(text.size());
    comma            = (text != head) && !text.ends_with(",\n");
    return ((kept == length) || (ftruncate(fd_.get(), kept) == 0)) ? 0 : -errno;
}

} // namespace gaudi::emu
