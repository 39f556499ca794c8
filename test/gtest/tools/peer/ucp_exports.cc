/*
 * Buffers that one process allocates, exports and frees, one after another, and
 * that another one writes and reads meanwhile. Both look at the bytes, and at
 * what they have open, mapped and resident.
 *
 * usage: ucp_exports client|server COUNT
 *        ucp_exports alone COUNT SIZE
 *
 * File descriptor 3 is a socket to the other side. The server allocates. The
 * last one sends each buffer's end to itself, and frees a buffer before it
 * allocates the next one.
 */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/memory.h"
#include "gtest/tools/peer/side.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <unistd.h>

using namespace peer;

namespace {

constexpr int peer_fd     = 3;
constexpr unsigned life_s = 550;
/* Most are parts of one block of the driver; some are a block of their own. */
constexpr size_t sizes[]         = {4096, 64, 70000, 8192, 300000, 512, 20480};
constexpr size_t block_size      = 49ul << 20;
constexpr unsigned block_every   = 50;
constexpr size_t kept            = 5;    /* alive at a time, at the exporter */
constexpr size_t looked_at       = 2048; /* bytes of a buffer, at most */
constexpr size_t message_size    = 1ul << 20;
constexpr unsigned seeds         = 1000;
constexpr ptrdiff_t more_files   = 4;
constexpr ptrdiff_t more_maps    = 40;
constexpr size_t more_memory_kib = 24 * 1024;

/* Messages over the socket. */
struct offer {
    uint64_t address;
    uint64_t size;
    uint64_t seed;
};

struct counts {
    ptrdiff_t files;
    ptrdiff_t mappings;
    size_t resident_kib; /* without shared memory, which a card's is */
};

size_t resident_kib()
{
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word == "RssAnon:") {
            size_t amount = 0;
            status >> amount;
            return amount;
        }
    }
    die("/proc/self/status", "has no RssAnon");
}

counts count()
{
    const std::filesystem::directory_iterator files("/proc/self/fd");
    std::ifstream maps("/proc/self/maps");
    return {std::distance(begin(files), end(files)),
            std::count(std::istreambuf_iterator<char>(maps), {}, '\n'),
            resident_kib()};
}

/* Looks after the first quarter, and at the end. */
class watcher {
public:
    explicit watcher(unsigned total) : total_(total) {}

    void look(unsigned done)
    {
        if (done == total_ / 4) {
            before_ = count();
        } else if (done == total_) {
            const counts now = count();
            std::printf("files %td then %td, mappings %td then %td, memory %zu "
                        "then %zu KiB\n",
                        before_.files, now.files, before_.mappings,
                        now.mappings, before_.resident_kib, now.resident_kib);
            if ((now.files > before_.files + more_files) ||
                (now.mappings > before_.mappings + more_maps) ||
                (now.resident_kib > before_.resident_kib + more_memory_kib)) {
                std::fflush(stdout);
                die("files, mappings or memory", "are more and more");
            }
        }
    }

private:
    unsigned total_;
    counts before_{};
};

/* What of a buffer is looked at: its last bytes. */
size_t part_of(size_t size)
{
    return std::min(size, looked_at);
}

void wait_for_letter(worker &of, const channel &socket)
{
    char letter = 0;
    while (!socket.try_receive(letter)) {
        if (!of.progress()) {
            std::this_thread::yield();
        }
    }
}

std::vector<char> bytes_of(unsigned seed, size_t size)
{
    std::vector<char> result(size);
    fill(result.data(), size, seed);
    return result;
}

void expect_bytes(const std::vector<char> &there, unsigned seed)
{
    if (there != bytes_of(seed, there.size())) {
        die("contents", "differ");
    }
}

void export_buffers(unsigned total, const context &common, worker &mine,
                    const channel &socket)
{
    watcher watch(total);
    std::deque<memory> alive;
    for (unsigned i = 0; i < total; ++i) {
        set_case("buffer " + std::to_string(i));
        const size_t size = ((i % block_every) == block_every - 1)
                                ? block_size
                                : sizes[i % std::size(sizes)];
        if (alive.size() == kept) {
            alive.pop_front();
        }
        memory &now = alive.emplace_back(common, kind_of_memory::gaudi, size);
        const size_t part = part_of(size);
        const offer what{reinterpret_cast<uint64_t>(now.data()), size,
                         1 + i % seeds};
        now.store(size - part, bytes_of(what.seed, part).data(), part);
        const std::vector<char> key = now.pack_key();
        socket.send(&what, sizeof(what));
        socket.send_block(key.data(), key.size());
        wait_for_letter(mine, socket);
        std::vector<char> there(part);
        now.load(size - part, there.data(), part);
        expect_bytes(there, what.seed + 1);
        watch.look(i + 1);
    }
    const char letter = 'q';
    socket.send(&letter, 1);
}

void use_buffers(unsigned total, side &end, const channel &socket)
{
    watcher watch(total);
    const ucp_request_param_t defaults{};
    const auto run = [&](ucs_status_ptr_t request, const char *what) {
        operation going(request, what);
        finish(going, {&end.of()});
    };
    for (unsigned i = 0; i < total; ++i) {
        set_case("buffer " + std::to_string(i));
        offer what;
        socket.receive(&what, sizeof(what));
        const std::vector<char> packed = socket.receive_block();
        ucp_rkey_h key                 = nullptr;
        require(ucp_ep_rkey_unpack(end.ep(), packed.data(), &key),
                "ucp_ep_rkey_unpack");
        const size_t part    = part_of(what.size);
        const uint64_t place = what.address + what.size - part;
        std::vector<char> there(part);
        run(ucp_get_nbx(end.ep(), there.data(), part, place, key, &defaults),
            "ucp_get_nbx");
        expect_bytes(there, static_cast<unsigned>(what.seed));
        there = bytes_of(static_cast<unsigned>(what.seed) + 1, part);
        run(ucp_put_nbx(end.ep(), there.data(), part, place, key, &defaults),
            "ucp_put_nbx");
        run(ucp_ep_flush_nbx(end.ep(), &defaults), "ucp_ep_flush_nbx");
        ucp_rkey_destroy(key);
        const char letter = 'n';
        socket.send(&letter, 1);
        watch.look(i + 1);
    }
    wait_for_letter(end.of(), socket);
}

/* UCP registers what it sends, makes a key of it, and keeps both. */
void send_to_oneself(unsigned total, size_t size)
{
    context common;
    worker mine(common, UCS_THREAD_MODE_SINGLE);
    side end(mine, 0, mine.address());
    const ucp_request_param_t defaults{};
    constexpr ucp_tag_t tag = 5;
    for (unsigned i = 0; i < total; ++i) {
        set_case("buffer " + std::to_string(i));
        memory buffer(common, kind_of_memory::gaudi, size);
        const std::vector<char> sent = bytes_of(1 + i % seeds, message_size);
        buffer.store(size - message_size, sent.data(), message_size);
        std::vector<char> came(message_size);
        operation coming(ucp_tag_recv_nbx(mine.get(), came.data(), came.size(),
                                          tag, ~ucp_tag_t{0}, &defaults),
                         "ucp_tag_recv_nbx");
        operation going(ucp_tag_send_nbx(end.ep(),
                                         buffer.data() + size - message_size,
                                         message_size, tag, &defaults),
                        "ucp_tag_send_nbx");
        finish(coming, {&mine});
        finish(going, {&mine});
        if (came != sent) {
            die("contents", "differ");
        }
    }
    operation closing = end.close();
    finish(closing, {&mine});
    std::puts("all sent");
}

} // namespace

int main(int argc, char **argv)
{
    alarm(life_s);
    set_case("the start");
    if ((argc == 4) && (std::string(argv[1]) == "alone")) {
        send_to_oneself(static_cast<unsigned>(std::stoul(argv[2])),
                        std::stoul(argv[3]));
        return 0;
    }
    if (argc != 3) {
        die("usage", "ucp_exports client|server COUNT, or alone COUNT SIZE");
    }
    const bool is_client = (std::string(argv[1]) == "client");
    const auto total     = static_cast<unsigned>(std::stoul(argv[2]));
    context common;
    worker mine(common, UCS_THREAD_MODE_SINGLE);
    const channel socket(peer_fd);
    const std::vector<char> address = mine.address();
    socket.send_block(address.data(), address.size());
    side end(mine, 0, socket.receive_block());
    if (is_client) {
        use_buffers(total, end, socket);
    } else {
        export_buffers(total, common, mine, socket);
    }
    operation closing = end.close();
    finish(closing, {&mine});
    std::puts(is_client ? "all used" : "all exported");
    return 0;
}
