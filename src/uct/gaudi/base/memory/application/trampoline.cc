#include "uct/gaudi/base/memory/application/trampoline.h"

#include <array>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <thread>

#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <unistd.h>

namespace gaudi::base {

namespace {

constexpr unsigned operand_size_prefix = 0x66;
constexpr unsigned two_byte_opcode     = 0x0f;
constexpr unsigned near_jump           = 0xe9;
constexpr unsigned short_jump          = 0xeb;

/* Parts of an instruction, as far as they matter to move it. */
struct instruction {
    size_t length         = 0;
    size_t relative       = 0;       /* where its relative displacement is */
    const uint8_t *target = nullptr; /* what that leads to, if there is one */
    unsigned jump         = 0;       /* opcode of the near form of a jump */
};

/* What follows an opcode of one byte, laid out like the opcode map of the
 * processor's manual. Capital letters: behind a ModRM byte.
 *   -     not moved
 *   o M   nothing
 *   b B   an immediate operand of 1 byte, d D of 4, v of 4 or, if wide, 8
 *   S T   as B and D for test; nothing for not, neg, mul, and div
 *   I     nothing for inc, dec, and push; calls and jumps are not moved */
constexpr char one_byte_opcodes[] = "MMMMbd--MMMMbd--" /* 00 add, or */
                                    "MMMMbd--MMMMbd--" /* 10 adc, sbb */
                                    "MMMMbd--MMMMbd--" /* 20 and, sub */
                                    "MMMMbd--MMMMbd--" /* 30 xor, cmp */
                                    "----------------"
                                    "oooooooooooooooo" /* 50 push, pop */
                                    "---M----dDb-----" /* 60 push, imul */
                                    "----------------"
                                    "BD-BMMMMMMMM-M--" /* 80 mov, lea */
                                    "o---------------" /* 90 nop */
                                    "--------bd------" /* a0 test */
                                    "bbbbbbbbvvvvvvvv" /* b0 mov */
                                    "BB----BD--------" /* c0 shifts, mov */
                                    "-M--------------" /* d0 shifts by one */
                                    "----------------"
                                    "------ST-------I"; /* f0 */
static_assert(sizeof(one_byte_opcodes) == 256 + 1);

bool in_range(unsigned value, unsigned first, unsigned last)
{
    return (value >= first) && (value <= last);
}

/* Bytes of the immediate operand; -1 if the instruction is not moved. */
int immediate_bytes(char form, unsigned reg, bool wide)
{
    if ((form == '-') || ((form == 'I') && (reg >= 2) && (reg != 6))) {
        return -1;
    }
    if (((form == 'S') || (form == 'T')) && (reg >= 2)) {
        return 0;
    }
    if ((form == 'b') || (form == 'B') || (form == 'S')) {
        return 1;
    }
    if ((form == 'd') || (form == 'D') || (form == 'T') || (form == 'v')) {
        return ((form == 'v') && wide) ? 8 : 4;
    }
    return 0;
}

/* endbr64 and nop, cmov, setcc, movzx and movsx, moves and logic of vector
 * registers: all of them with a ModRM byte and nothing else. */
char two_byte_form(unsigned opcode)
{
    const bool known =
        in_range(opcode, 0x1e, 0x1f) || in_range(opcode, 0x40, 0x4f) ||
        in_range(opcode, 0x90, 0x9f) || in_range(opcode, 0xb6, 0xb7) ||
        in_range(opcode, 0xbe, 0xbf) || in_range(opcode, 0x10, 0x17) ||
        in_range(opcode, 0x28, 0x29) || in_range(opcode, 0x54, 0x57) ||
        in_range(opcode, 0x6e, 0x6f) || in_range(opcode, 0x7e, 0x7f) ||
        (opcode == 0x6c) || (opcode == 0xd6) || (opcode == 0xef);
    return known ? 'M' : '-';
}

template <typename Integer>
Integer load(const uint8_t *from)
{
    Integer value;
    std::memcpy(&value, from, sizeof(value));
    return value;
}

/* False for what is not a jump to a relative address. */
bool decode_jump(const uint8_t *code, instruction &what)
{
    const unsigned opcode = code[0];
    const bool is_short =
        in_range(opcode, 0x70, 0x7f) || (opcode == short_jump);
    if (is_short) {
        what.jump   = (opcode == short_jump) ? near_jump : opcode + 0x0f10;
        what.length = 2;
        what.target = code + what.length + load<int8_t>(code + 1);
        return true;
    }
    if (opcode == near_jump) {
        what.jump   = opcode;
        what.length = 5;
    } else if ((opcode == two_byte_opcode) && in_range(code[1], 0x80, 0x8f)) {
        what.jump   = 0x0f00 | code[1];
        what.length = 6;
    } else {
        return false;
    }
    what.target = code + what.length + load<int32_t>(code + what.length - 4);
    return true;
}

/* False for what is not known. */
bool decode(const uint8_t *code, instruction &what)
{
    if (decode_jump(code, what)) {
        return true;
    }
    size_t at          = 0;
    bool short_operand = false;
    for (;; ++at) {
        if (code[at] == operand_size_prefix) {
            short_operand = true;
        } else if ((code[at] != 0xf2) && (code[at] != 0xf3)) {
            break;
        }
    }
    bool wide = false;
    if ((code[at] & 0xf0) == 0x40) {
        wide = (code[at++] & 8) != 0;
    }
    const unsigned opcode = code[at++];
    const char form = (opcode == two_byte_opcode) ? two_byte_form(code[at++])
                                                  : one_byte_opcodes[opcode];
    const int immediate = immediate_bytes(form, (code[at] >> 3) & 7, wide);
    if ((immediate < 0) || (short_operand && (immediate > 1))) {
        return false;
    }
    if (in_range(form, 'A', 'Z')) {
        const unsigned modrm = code[at++];
        const unsigned mod   = modrm >> 6;
        const unsigned rm    = modrm & 7;
        if ((mod != 3) && (rm == 4)) {
            const unsigned sib = code[at++];
            if ((mod == 0) && ((sib & 7) == 5)) {
                at += 4;
            }
        } else if ((mod == 0) && (rm == 5)) { /* relative to the next one */
            what.relative = at;
            at += 4;
        }
        at += (mod == 1) ? 1 : (mod == 2) ? 4 : 0;
    }
    what.length = at + static_cast<size_t>(immediate);
    if (what.relative != 0) {
        what.target = code + what.length + load<int32_t>(code + what.relative);
    }
    return true;
}

/* Store the distance from the end of an instruction. */
bool store_distance(uint8_t *where, const uint8_t *target, const uint8_t *end)
{
    const int64_t distance =
        reinterpret_cast<intptr_t>(target) - reinterpret_cast<intptr_t>(end);
    const auto fitting = static_cast<int32_t>(distance);
    std::memcpy(where, &fitting, sizeof(fitting));
    return fitting == distance;
}

/* Write a near jump. */
bool write_jump(unsigned opcode, const uint8_t *target, uint8_t *&out)
{
    if (opcode > 0xff) {
        *out++ = two_byte_opcode;
    }
    *out++ = static_cast<uint8_t>(opcode);
    out += 4;
    return store_distance(out - 4, target, out);
}

/* Change the protection of the pages of a function's first bytes. */
bool protect_start(void *function, int protection)
{
    const auto page  = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto start = reinterpret_cast<uintptr_t>(function);
    const auto first = start & -page;
    const auto end   = (start + near_jump_bytes + page - 1) & -page;
    return mprotect(reinterpret_cast<void *>(first), end - first, protection) ==
           0;
}

/* What other threads execute: two bytes at once. */
void write_two_bytes(void *code, const uint8_t *bytes)
{
    uint16_t word;
    std::memcpy(&word, bytes, sizeof(word));
    __atomic_store_n(static_cast<uint16_t *>(code), word, __ATOMIC_RELEASE);
}

} // namespace

void write_far_jump(uint8_t *code, const void *target)
{
    constexpr uint8_t jump[] = {0xff, 0x25, 0, 0, 0, 0}; /* to what follows */
    static_assert(sizeof(jump) + sizeof(target) == far_jump_bytes);
    std::memcpy(code, jump, sizeof(jump));
    std::memcpy(code + sizeof(jump), &target, sizeof(target));
}

uint8_t *map_code_near(const void *function, size_t bytes)
{
    constexpr uintptr_t step  = 1 << 20;
    constexpr uintptr_t reach = uintptr_t{1} << 30;
    const uintptr_t around    = reinterpret_cast<uintptr_t>(function) & -step;
    for (uintptr_t distance = step; distance < reach; distance += step) {
        for (const uintptr_t place : {around - distance, around + distance}) {
            void *data = mmap(
                reinterpret_cast<void *>(place), bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            if (data == reinterpret_cast<void *>(place)) {
                return static_cast<uint8_t *>(data);
            }
            if (data != MAP_FAILED) {
                munmap(data, bytes); /* a kernel without the flag */
            }
        }
    }
    return nullptr;
}

bool finish_code(uint8_t *code, size_t bytes)
{
    return mprotect(code, bytes, PROT_READ | PROT_EXEC) == 0;
}

bool write_trampoline(const uint8_t *function, size_t bytes, uint8_t *code)
{
    constexpr size_t longest = 15; /* instruction, and a bit less a jump */
    const uint8_t *in        = function;
    uint8_t *out             = code;

    while (in < function + bytes) {
        instruction what;
        if (!decode(in, what) ||
            (out + 2 * longest > code + trampoline_bytes)) {
            return false;
        }
        const uint8_t *end = in + what.length;
        if (what.jump != 0) {
            if (((what.target >= function) &&
                 (what.target < function + bytes)) ||
                !write_jump(what.jump, what.target, out)) {
                return false;
            }
            if (what.jump == near_jump) { /* nothing goes on behind it */
                return end >= function + bytes;
            }
        } else {
            std::memcpy(out, in, what.length);
            out += what.length;
            if ((what.target != nullptr) &&
                !store_distance(out - what.length + what.relative, what.target,
                                out)) {
                return false;
            }
        }
        in = end;
    }
    return write_jump(near_jump, in, out);
}

bool write_jumps(std::span<const function_jump> jumps)
{
    constexpr uint8_t to_itself[] = {short_jump, 0xfe};
    constexpr std::chrono::milliseconds time_to_leave(5);
    constexpr int code = PROT_READ | PROT_EXEC;

    for (size_t i = 0; i < jumps.size(); ++i) {
        if (!protect_start(jumps[i].function, code | PROT_WRITE)) {
            for (const function_jump &jump : jumps.first(i)) {
                (void)protect_start(jump.function, code);
            }
            return false;
        }
    }
    for (const function_jump &jump : jumps) {
        write_two_bytes(jump.function, to_itself);
    }
    if (!__libc_single_threaded) {
        std::this_thread::sleep_for(time_to_leave);
    }
    for (const function_jump &jump : jumps) {
        auto *start = static_cast<uint8_t *>(jump.function);
        std::array<uint8_t, near_jump_bytes> bytes{near_jump};
        (void)store_distance(bytes.data() + 1,
                             static_cast<const uint8_t *>(jump.target),
                             start + near_jump_bytes);
        std::memcpy(start + 2, bytes.data() + 2, near_jump_bytes - 2);
        write_two_bytes(start, bytes.data());
    }
    for (const function_jump &jump : jumps) {
        (void)protect_start(jump.function, code);
    }
    return true;
}

} // namespace gaudi::base
