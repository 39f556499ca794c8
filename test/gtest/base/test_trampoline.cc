/* Functions stay callable when their first bytes are overwritten. */
#include "uct/gaudi/base/memory/application/trampoline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

using namespace gaudi::base;

namespace {

using bytes = std::vector<uint8_t>;

/* Code in a page, its trampoline in another one. */
class moved_code {
public:
    explicit moved_code(const bytes &code)
        : size_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
          code_(static_cast<uint8_t *>(
              mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
          moved_(map_code_near(code_, size_))
    {
        std::copy(code.begin(), code.end(), code_);
        good = write_trampoline(code_, near_jump_bytes, moved_);
        std::memset(code_, 0xcc, near_jump_bytes); /* a trap, if executed */
        EXPECT_TRUE(finish_code(code_, size_));
        EXPECT_TRUE(finish_code(moved_, size_));
    }
    ~moved_code()
    {
        munmap(code_, size_);
        munmap(moved_, size_);
    }
    moved_code(const moved_code &)            = delete;
    moved_code &operator=(const moved_code &) = delete;

    int call(int value) const
    {
        return reinterpret_cast<int (*)(int)>(moved_)(value);
    }

    bool good = false;

private:
    size_t size_;
    uint8_t *code_;
    uint8_t *moved_;
};

TEST(trampoline, moves_what_compilers_start_functions_with)
{
    const std::vector<bytes> starts = {
        /* endbr64; mov edi,eax; inc eax; ret */
        {0xf3, 0x0f, 0x1e, 0xfa, 0x89, 0xf8, 0xff, 0xc0, 0xc3},
        /* push rbp; mov rsp,rbp; lea 1(rdi),eax; pop rbp; ret */
        {0x55, 0x48, 0x89, 0xe5, 0x8d, 0x47, 0x01, 0x5d, 0xc3},
        /* sub $8,rsp; mov edi,eax; add $1,eax; add $8,rsp; ret */
        {0x48, 0x83, 0xec, 0x08, 0x89, 0xf8, 0x83, 0xc0, 0x01, 0x48, 0x83, 0xc4,
         0x08, 0xc3},
        /* push r12; xor eax,eax; lea 1(rdi,rax),eax; pop r12; ret */
        {0x41, 0x54, 0x31, 0xc0, 0x8d, 0x44, 0x07, 0x01, 0x41, 0x5c, 0xc3}};
    for (const bytes &code : starts) {
        const moved_code moved(code);
        ASSERT_TRUE(moved.good) << "case " << &code - starts.data();
        EXPECT_EQ(42, moved.call(41));
    }
}

TEST(trampoline, adjusts_operands_relative_to_the_code)
{
    /* mov 8(rip),eax; add edi,eax; ret; padding; the number. */
    const moved_code moved({0x8b, 0x05, 0x04, 0x00, 0x00, 0x00, 0x01, 0xf8,
                            0xc3, 0x90, 100, 0, 0, 0});
    ASSERT_TRUE(moved.good);
    EXPECT_EQ(101, moved.call(1));
}

TEST(trampoline, adjusts_jumps)
{
    /* test edi,edi; je +6; mov $1,eax; ret; mov $2,eax; ret */
    const moved_code moved({0x85, 0xff, 0x74, 0x06, 0xb8, 1, 0, 0, 0, 0xc3,
                            0xb8, 2, 0, 0, 0, 0xc3});
    ASSERT_TRUE(moved.good);
    EXPECT_EQ(1, moved.call(5));
    EXPECT_EQ(2, moved.call(0));

    /* jmp +1; trap; lea 1(rdi),eax; ret */
    const moved_code far({0xe9, 1, 0, 0, 0, 0xcc, 0x8d, 0x47, 0x01, 0xc3});
    ASSERT_TRUE(far.good);
    EXPECT_EQ(8, far.call(7));
}

TEST(trampoline, refuses_what_it_cannot_move)
{
    const std::vector<bytes> starts = {
        {0xe8, 0, 0, 0, 0, 0xc3},             /* call */
        {0x89, 0xf8, 0xff, 0xd0, 0x90, 0xc3}, /* call *rax */
        {0x90, 0x90, 0x75, 0xfc, 0x90, 0xc3}, /* jump to the first byte */
        {0xc3, 0x90, 0x90, 0x90, 0x90},       /* shorter than a jump */
        {0xc5, 0xf8, 0x57, 0xc0, 0x90, 0xc3}, /* vector extension */
        {0x66, 0xb8, 1, 0, 0x90, 0xc3},       /* short immediate operand */
    };
    for (const bytes &code : starts) {
        const moved_code moved(code);
        EXPECT_FALSE(moved.good) << "case " << &code - starts.data();
    }
}

/* Two functions in a page, and in another one what they jump to. */
class jumping_functions {
public:
    jumping_functions()
    {
        write_answer(functions_, 1);
        write_answer(functions_ + distance, 2);
        write_answer(targets_, 3);
        write_answer(targets_ + distance, 4);
        EXPECT_TRUE(finish_code(functions_, size_));
        EXPECT_TRUE(finish_code(targets_, size_));
    }
    ~jumping_functions()
    {
        munmap(functions_, size_);
        munmap(targets_, size_);
    }
    jumping_functions(const jumping_functions &)            = delete;
    jumping_functions &operator=(const jumping_functions &) = delete;

    [[nodiscard]] bool write()
    {
        const function_jump jumps[] = {
            {functions_, targets_},
            {functions_ + distance, targets_ + distance}};
        return write_jumps(jumps);
    }
    [[nodiscard]] bool write_one_that_cannot_be()
    {
        const function_jump jumps[] = {{functions_, targets_},
                                       {nullptr, targets_}};
        return write_jumps(jumps);
    }
    [[nodiscard]] int call(size_t which) const
    {
        return reinterpret_cast<int (*)()>(functions_ + which * distance)();
    }

private:
    static constexpr size_t distance = 64;

    /* mov $answer,eax; ret */
    static void write_answer(uint8_t *code, uint8_t answer)
    {
        const uint8_t all[] = {0xb8, answer, 0, 0, 0, 0xc3};
        std::copy(std::begin(all), std::end(all), code);
    }

    const size_t size_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    uint8_t *functions_ =
        map_code_near(reinterpret_cast<const void *>(&map_code_near), size_);
    uint8_t *targets_ = map_code_near(functions_, size_);
};

TEST(jumps, lead_each_function_elsewhere)
{
    jumping_functions code;
    ASSERT_EQ(1, code.call(0));
    ASSERT_EQ(2, code.call(1));
    ASSERT_TRUE(code.write());
    EXPECT_EQ(3, code.call(0));
    EXPECT_EQ(4, code.call(1));
}

TEST(jumps, are_all_written_or_none)
{
    jumping_functions code;
    EXPECT_FALSE(code.write_one_that_cannot_be());
    EXPECT_EQ(1, code.call(0));
    ASSERT_TRUE(code.write());
    EXPECT_EQ(3, code.call(0));
}

TEST(jumps, are_written_while_another_thread_calls)
{
    for (int turn = 0; turn < 20; ++turn) {
        jumping_functions code;
        std::atomic<bool> calls{false};
        std::atomic<bool> written{false};
        std::thread caller([&] {
            bool was_written = false;
            do {
                was_written      = written.load();
                const int answer = code.call(0);
                EXPECT_TRUE((answer == 3) || (!was_written && (answer == 1)))
                    << answer;
                calls = true;
            } while (!was_written);
        });
        while (!calls) {
            std::this_thread::yield();
        }
        EXPECT_TRUE(code.write());
        written = true;
        caller.join();
    }
}

} // namespace
