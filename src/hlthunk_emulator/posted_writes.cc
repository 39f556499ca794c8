/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/posted_writes.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/file_lock.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
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

/* Writes, oldest first, and how many of them have reached the chip. */
struct place_head {
    uint64_t writes;
    uint64_t in_chip;
};

constexpr uint64_t place_bytes =
    sizeof(place_head) + most_writes * sizeof(write_record) + most_bytes;

/* Of one card, as it is in the file. */
struct waiting_writes {
    std::vector<write_record> records;
    std::vector<char> data;
    uint64_t in_chip = 0;
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
    place_head head{};
    read_at(fd, &head, sizeof(head), place);
    found.records.resize(std::min(head.writes, most_writes));
    found.in_chip = std::min<uint64_t>(head.in_chip, found.records.size());
    place += sizeof(head);
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
    const place_head head{what.records.size(), what.in_chip};
    const place_head none{};
    write_at(fd, &none, sizeof(none), place);
    write_at(fd, what.records.data(), head.writes * sizeof(write_record),
             place + sizeof(head));
    write_at(fd, what.data.data(), what.data.size(),
             place + sizeof(head) + most_writes * sizeof(write_record));
    write_at(fd, &head, sizeof(head), place);
}

/* Let so many of the oldest arrive, */
void let_arrive(int fd, waiting_writes &waiting, uint64_t writes)
{
    const auto count = static_cast<ptrdiff_t>(writes);
    uint64_t copied  = 0;
    for (ptrdiff_t i = 0; i < count; ++i) {
        const write_record &oldest = waiting.records[i];
        write_at(fd, waiting.data.data() + copied, oldest.size, oldest.offset);
        copied += oldest.size;
    }
    waiting.records.erase(waiting.records.begin(),
                          waiting.records.begin() + count);
    waiting.data.erase(waiting.data.begin(),
                       waiting.data.begin() + static_cast<ptrdiff_t>(copied));
    waiting.in_chip -= std::min(waiting.in_chip, writes);
}

/* or as many as it takes until there is room. */
void make_room(int fd, waiting_writes &waiting, uint64_t bytes, uint64_t writes)
{
    size_t gone   = 0;
    uint64_t left = waiting.data.size();
    while ((gone < waiting.records.size()) &&
           ((left + bytes > most_bytes) ||
            (waiting.records.size() - gone + writes > most_writes))) {
        left -= waiting.records[gone++].size;
    }
    let_arrive(fd, waiting, gone);
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

/* Change what waits at a place, if anything does. */
template <typename Change>
void change_place(int fd, uint64_t place, Change &&change)
{
    const locked_place turn(fd, place);
    waiting_writes waiting = load(fd, place);
    if (!waiting.records.empty()) {
        change(waiting);
        store(fd, place, waiting);
    }
}

void push_place(int fd, uint64_t place)
{
    change_place(fd, place, [fd](waiting_writes &waiting) {
        let_arrive(fd, waiting, waiting.records.size());
    });
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
        push_place(fd_.get(), place_);
    }
    return ret;
}

/* The owner's driver flushes when nobody has its memory any more (hl_ewr_put).
 */
posted_writes::~posted_writes()
{
    if (fd_) {
        push_place(fd_.get(), place_);
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
    if (get_settings().early) {
        change_place(fd_.get(), place_, [](waiting_writes &waiting) {
            waiting.in_chip = waiting.records.size();
        });
    } else {
        push_place(fd_.get(), place_);
    }
}

void posted_writes::read(uint64_t offset, char *dst, const char *src,
                         uint64_t size)
{
    const std::lock_guard<std::mutex> guard(lock_);
    const locked_place turn(fd_.get(), place_);
    const waiting_writes waiting = load(fd_.get(), place_);
    std::memcpy(dst, src, size);
    const char *data = waiting.data.data();
    for (const write_record &each : waiting.records) {
        const uint64_t start = std::max(offset, each.offset);
        const uint64_t end   = std::min(offset + size, each.offset + each.size);
        if (start < end) {
            std::memcpy(dst + (start - offset), data + (start - each.offset),
                        end - start);
        }
        data += each.size;
    }
}

namespace {

template <typename Visit>
void visit_places(int memory_fd, uint64_t memory, Visit &&visit)
{
    util::unique_fd fd;
    if (open_anew(memory_fd, fd) != 0) {
        return;
    }
    for (unsigned writer = 0; writer < max_cards; ++writer) {
        visit(fd.get(), memory + writer * place_bytes);
    }
}

} // namespace

void push_posted_writes(int memory_fd, uint64_t memory)
{
    visit_places(memory_fd, memory, push_place);
}

void flush_posted_writes(int memory_fd, uint64_t memory)
{
    visit_places(memory_fd, memory, [](int fd, uint64_t place) {
        change_place(fd, place, [fd](waiting_writes &waiting) {
            let_arrive(fd, waiting, waiting.in_chip);
        });
    });
}

} // namespace gaudi::emu
