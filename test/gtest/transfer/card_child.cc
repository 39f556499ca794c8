/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/transfer/card_child.h"

#include "common/ucx_logs.h"
#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/dmabuf.h"
#include "uct/gaudi/base/memory/memory_map.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using numbers = std::vector<uint64_t>;

/* Memory of the child: imported where it is used. */
class child_card_memory final : public card_memory {
public:
    child_card_memory(card_child &child, uint64_t first, size_t bytes,
                      int dmabuf, uint64_t offset)
        : card_memory(first, bytes), child_(child), dmabuf_(dmabuf),
          offset_(offset)
    {}
    ~child_card_memory() override
    {
        EXPECT_EQ(holds, releases);
        imported_ = {};
        close(dmabuf_);
        (void)child_.ask("free " + std::to_string(start));
    }

    void read(void *data, size_t bytes) override
    {
        const auto at = static_cast<off_t>(ask("load", bytes));
        EXPECT_EQ(static_cast<ssize_t>(bytes),
                  pread(child_.memory_file(), data, bytes, at));
    }
    void write(const void *data, size_t bytes) override
    {
        const auto at = static_cast<off_t>(ask("buffer", bytes));
        EXPECT_EQ(static_cast<ssize_t>(bytes),
                  pwrite(child_.memory_file(), data, bytes, at));
        (void)ask("store", bytes);
    }

private:
    int flush() override { return static_cast<int>(child_.ask("flush").at(0)); }
    int start_on(base::card &user, uint64_t &start_p) override
    {
        EXPECT_TRUE((user_ == nullptr) || (user_ == &user));
        user_ = &user;
        if (imported_.address() == 0) {
            const int64_t all = user.device().dmabuf_size(dmabuf_);
            const int ret     = user.device().import_dmabuf(
                    dmabuf_, static_cast<uint64_t>(all), imported_);
            if (ret != 0) {
                return ret;
            }
        }
        start_p = imported_.address() + offset_;
        return 0;
    }
    uint64_t ask(const std::string &what, size_t bytes)
    {
        return child_
            .ask(what + " " + std::to_string(start) + " " +
                 std::to_string(bytes))
            .at(0);
    }

    card_child &child_;
    const int dmabuf_;
    const uint64_t offset_; /* in the dma-buf */
    base::card *user_ = nullptr;
    shim::registration imported_;
};

} // namespace

GAUDI_CHILD(has_a_card)
{
    prepare_process();
    base::held_cards cards;
    GAUDI_CHILD_REQUIRE(base::card_table::instance().open(cards) == UCS_OK);
    base::card &card = *cards.all().front();
    std::unique_ptr<base::transfer_engine> engine;
    GAUDI_CHILD_REQUIRE(base::transfer_engine::create(card, {}, engine) ==
                        UCS_OK);
    std::map<uint64_t, base::device_memory *> memory;
    std::vector<char> buffer;

    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string what;
        uint64_t a = 0;
        size_t b   = 0;
        words >> what >> a >> b;
        void *there = reinterpret_cast<void *>(a);
        numbers answer{0};
        if (what == "end") {
            break;
        }
        if (what == "allocate") {
            base::device_memory *made = nullptr;
            int fd                    = -1;
            size_t offset             = 0;
            GAUDI_CHILD_REQUIRE(base::allocate(card, a, false, made) == UCS_OK);
            GAUDI_CHILD_REQUIRE(
                base::export_dmabuf(reinterpret_cast<void *>(made->start),
                                    made->end - made->start, false, fd,
                                    offset) == UCS_OK);
            memory[made->start] = made;
            answer              = {made->start, made->end - made->start,
                                   static_cast<uint64_t>(fd), offset};
        } else if (what == "close") {
            close(static_cast<int>(a));
        } else if (what == "free") {
            base::memory_map::instance().free(*memory.at(a));
            memory.erase(a);
        } else if (what == "buffer") {
            buffer.resize(b);
            answer = {reinterpret_cast<uintptr_t>(buffer.data())};
        } else if (what == "store") {
            GAUDI_CHILD_REQUIRE(engine->copy(there, buffer.data(), b) ==
                                UCS_OK);
        } else if (what == "load") {
            buffer.resize(b);
            GAUDI_CHILD_REQUIRE(engine->copy(buffer.data(), there, b) ==
                                UCS_OK);
            answer = {reinterpret_cast<uintptr_t>(buffer.data())};
        } else if (what == "flush") {
            answer = {static_cast<uint64_t>(card.device().flush())};
        } else if (what == "moved") {
            answer = {moved_bytes(card)};
        } else {
            std::fprintf(stderr, "what is %s?\n", line.c_str());
            return 1;
        }
        std::string text;
        for (const uint64_t each : answer) {
            text += std::to_string(each) + " ";
        }
        tell_parent(text);
    }
    engine.reset();
    GAUDI_CHILD_REQUIRE(memory.empty());
    cards = {};
    GAUDI_CHILD_REQUIRE(take_logs().empty());
    return 0;
}

card_child::card_child()
    : child_("has_a_card"),
      pidfd_(util::open_pidfd(static_cast<uint32_t>(child_.pid())).release()),
      file_(open(("/proc/" + std::to_string(child_.pid()) + "/mem").c_str(),
                 O_RDWR | O_CLOEXEC))
{
    EXPECT_GE(pidfd_, 0);
    EXPECT_GE(file_, 0);
}

card_child::~card_child()
{
    child_.write_line("end");
    const child_result result = child_.wait();
    EXPECT_EQ(0, result.exit_code) << result.error;
    close(file_);
    close(pidfd_);
}

std::vector<uint64_t> card_child::ask(const std::string &line)
{
    child_.write_line(line);
    std::istringstream words(child_.read_line());
    numbers answer;
    for (uint64_t number = 0; words >> number;) {
        answer.push_back(number);
    }
    EXPECT_FALSE(answer.empty()) << line;
    answer.resize(4);
    return answer;
}

int card_child::copy_file(int its_fd) const
{
    const long fd = syscall(SYS_pidfd_getfd, pidfd_, its_fd, 0);
    EXPECT_GE(fd, 0);
    return static_cast<int>(fd);
}

std::unique_ptr<card_memory> card_child::allocate(size_t bytes)
{
    const numbers made = ask("allocate " + std::to_string(bytes));
    const int its_fd   = static_cast<int>(made[2]);
    const int dmabuf   = copy_file(its_fd);
    (void)ask("close " + std::to_string(its_fd));
    return std::make_unique<child_card_memory>(*this, made[0], made[1], dmabuf,
                                               made[3]);
}

uint64_t card_child::moved_bytes()
{
    return ask("moved").at(0);
}

} // namespace gaudi::test
