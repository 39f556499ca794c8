#include "hlthunk_emulator/posted_writes.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/file_lock.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

/* What is on its way at most: the last bytes that were written. */
constexpr uint64_t most_bytes  = 65536;
constexpr uint64_t most_writes = 1024;

struct write_record {
    uint64_t offset;
    uint64_t size;
};

constexpr uint64_t place_bytes =
    sizeof(uint64_t) + most_writes * sizeof(write_record) + most_bytes;

/* Of one card, as it is in the file. */
struct waiting_writes {
    std::vector<write_record> records;
    std::vector<char> data;
};

void read_at(int fd, void *to, uint64_t size, uint64_t offset)
{
    (void)!pread(fd, to, size, static_cast<off_t>(offset));
}

void write_at(int fd, const void *from, uint64_t size, uint64_t offset)
{
    (void)!pwrite(fd, from, size, static_cast<off_t>(offset));
}

waiting_writes load(int fd, uint64_t place)
{
    waiting_writes found;
    uint64_t count = 0;
    read_at(fd, &count, sizeof(count), place);
    found.records.resize(std::min(count, most_writes));
    place += sizeof(count);
    read_at(fd, found.records.data(),
            found.records.size() * sizeof(write_record), place);
    uint64_t bytes = 0;
    for (const write_record &each : found.records) {
        bytes += each.size;
    }
    found.data.resize(std::min(bytes, most_bytes));
    place += most_writes * sizeof(write_record);
    read_at(fd, found.data.data(), found.data.size(), place);
    return found;
}

/* The number last: of a process that is killed in the middle they are lost, as
 * in a reset. */
void store(int fd, uint64_t place, const waiting_writes &what)
{
    const uint64_t count = what.records.size();
    const uint64_t none  = 0;
    write_at(fd, &none, sizeof(none), place);
    write_at(fd, what.records.data(), count * sizeof(write_record),
             place + sizeof(count));
    write_at(fd, what.data.data(), what.data.size(),
             place + sizeof(count) + most_writes * sizeof(write_record));
    write_at(fd, &count, sizeof(count), place);
}

/* Let the oldest arrive until there is room. */
void make_room(int fd, waiting_writes &waiting, uint64_t bytes, uint64_t writes)
{
    size_t gone     = 0;
    uint64_t copied = 0;
    while ((gone < waiting.records.size()) &&
           ((waiting.data.size() - copied + bytes > most_bytes) ||
            (waiting.records.size() - gone + writes > most_writes))) {
        const write_record &oldest = waiting.records[gone++];
        write_at(fd, waiting.data.data() + copied, oldest.size, oldest.offset);
        copied += oldest.size;
    }
    waiting.records.erase(waiting.records.begin(),
                          waiting.records.begin() +
                              static_cast<ptrdiff_t>(gone));
    waiting.data.erase(waiting.data.begin(),
                       waiting.data.begin() + static_cast<ptrdiff_t>(copied));
}

/* Keeps other processes from a place. */
class locked_place {
public:
    locked_place(int fd, uint64_t place)
        : fd_(fd), place_(static_cast<off_t>(place))
    {
        (void)wait_while_busy(std::chrono::seconds(10), [this] {
            return set_lock(fd_, F_WRLCK, place_);
        });
    }
    ~locked_place() { (void)set_lock(fd_, F_UNLCK, place_); }
    locked_place(const locked_place &)            = delete;
    locked_place &operator=(const locked_place &) = delete;

private:
    const int fd_;
    const off_t place_;
};

void push_place(int fd, uint64_t place)
{
    const locked_place turn(fd, place);
    waiting_writes waiting = load(fd, place);
    if (!waiting.records.empty()) {
        make_room(fd, waiting, most_bytes, most_writes);
        store(fd, place, waiting);
    }
}

/* A lock belongs to an opening of the file. */
int open_anew(int memory_fd, util::unique_fd &fd_p)
{
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/fd/%d", memory_fd);
    fd_p.reset(::open(path, O_RDWR | O_CLOEXEC));
    return fd_p ? 0 : -errno;
}

} // namespace

uint64_t posted_bytes()
{
    return max_cards * place_bytes;
}

int posted_writes::open(int memory_fd, uint64_t memory, unsigned writer)
{
    const int ret = open_anew(memory_fd, fd_);
    if (ret == 0) {
        closed_in_children_ = util::closed_in_children(fd_.get());
        place_              = memory + writer * place_bytes;
        push();
    }
    return ret;
}

posted_writes::~posted_writes()
{
    if (fd_) {
        push();
    }
}

void posted_writes::post(uint64_t offset, const char *data, uint64_t size)
{
    const uint64_t now = size - std::min(size, most_bytes);
    const std::lock_guard<std::mutex> guard(lock_);
    const locked_place turn(fd_.get(), place_);
    waiting_writes waiting = load(fd_.get(), place_);
    make_room(fd_.get(), waiting, size - now, 1);
    write_at(fd_.get(), data, now, offset);
    waiting.records.push_back({offset + now, size - now});
    waiting.data.insert(waiting.data.end(), data + now, data + size);
    store(fd_.get(), place_, waiting);
}

void posted_writes::push()
{
    const std::lock_guard<std::mutex> guard(lock_);
    push_place(fd_.get(), place_);
}

void flush_posted_writes(int memory_fd, uint64_t memory)
{
    util::unique_fd fd;
    if (open_anew(memory_fd, fd) != 0) {
        return;
    }
    for (unsigned writer = 0; writer < max_cards; ++writer) {
        push_place(fd.get(), memory + writer * place_bytes);
    }
}

} // namespace gaudi::emu
