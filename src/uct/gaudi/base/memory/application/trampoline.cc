#include "uct/gaudi/base/memory/application/trampoline.h"

#include <cstring>
#include <initializer_list>

#include <sys/mman.h>

namespace gaudi::base {

namespace {

constexpr unsigned operand_size_prefix = 0x66;
constexpr unsigned two_byte_opcode     = 0x0f;
constexpr unsigned near_jump           = 0xe9;
constexpr unsigned short_jump          = 0xeb;

/* Parts of an instruction, as far as they matter to move it. */
struct instruction {
    size_t length   = 0;
    size_t relative = 0;     /* where its relative displacement is; 0: none */
    unsigned width  = 0;     /* of that, bytes */
    unsigned opcode = 0;     /* of a jump; 0x0f80 and up for near conditional */
    bool leaves     = false; /* never goes on behind itself */
};

struct operands {
    bool known     = false;
    bool modrm     = false;
    unsigned bytes = 0; /* of the immediate operand */
};

bool in_range(unsigned value, unsigned first, unsigned last)
{
    return (value >= first) && (value <= last);
}

operands one_byte_operands(unsigned opcode, unsigned reg, bool wide)
{
    constexpr operands modrm{true, true, 0};
    constexpr operands none{true, false, 0};

    if (opcode < 0x40) { /* add, or, adc, sbb, and, sub, xor, cmp */
        switch (opcode & 7) {
        case 4:
            return {true, false, 1};
        case 5:
            return {true, false, 4};
        case 6:
        case 7:
            return {};
        default:
            return modrm;
        }
    }
    if (in_range(opcode, 0x50, 0x5f) || (opcode == 0x90)) { /* push, pop, nop */
        return none;
    }
    if (in_range(opcode, 0xb0, 0xb7)) { /* mov to a register */
        return {true, false, 1};
    }
    if (in_range(opcode, 0xb8, 0xbf)) {
        return {true, false, wide ? 8U : 4U};
    }
    switch (opcode) {
    case 0x63: /* movslq */
    case 0x84: /* test */
    case 0x85:
    case 0x86: /* xchg */
    case 0x87:
    case 0x88: /* mov */
    case 0x89:
    case 0x8a:
    case 0x8b:
    case 0x8d: /* lea */
    case 0xd1: /* shifts by one */
        return modrm;
    case 0x68: /* push */
    case 0xa9: /* test */
        return {true, false, 4};
    case 0x6a:
    case 0xa8:
        return {true, false, 1};
    case 0x80: /* arithmetic, shifts, mov */
    case 0x83:
    case 0xc0:
    case 0xc1:
    case 0xc6:
        return {true, true, 1};
    case 0x69: /* imul */
    case 0x81:
    case 0xc7:
        return {true, true, 4};
    case 0xf6: /* test, not, neg, mul, div */
        return {true, true, (reg < 2) ? 1U : 0U};
    case 0xf7:
        return {true, true, (reg < 2) ? 4U : 0U};
    case 0xff: /* inc, dec, push; calls and jumps are not moved */
        return ((reg < 2) || (reg == 6)) ? modrm : operands{};
    default:
        return {};
    }
}

operands two_byte_operands(unsigned opcode)
{
    /* endbr64 and nop, cmov, setcc, movzx and movsx, moves and logic of vector
     * registers. */
    const bool known =
        in_range(opcode, 0x1e, 0x1f) || in_range(opcode, 0x40, 0x4f) ||
        in_range(opcode, 0x90, 0x9f) || in_range(opcode, 0xb6, 0xb7) ||
        in_range(opcode, 0xbe, 0xbf) || in_range(opcode, 0x10, 0x17) ||
        in_range(opcode, 0x28, 0x29) || in_range(opcode, 0x54, 0x57) ||
        in_range(opcode, 0x6e, 0x6f) || in_range(opcode, 0x7e, 0x7f) ||
        (opcode == 0x6c) || (opcode == 0xd6) || (opcode == 0xef);
    return {known, true, 0};
}

/* Decode a relative jump at `at`. */
bool decode_jump(const uint8_t *code, size_t at, instruction &what)
{
    unsigned opcode = code[at++];
    if (opcode == two_byte_opcode) {
        opcode = 0x0f00 | code[at++];
    }
    const bool is_short =
        in_range(opcode, 0x70, 0x7f) || (opcode == short_jump);
    if (!is_short && (opcode != near_jump) &&
        !in_range(opcode, 0x0f80, 0x0f8f)) {
        return false;
    }
    what.opcode   = opcode;
    what.relative = at;
    what.width    = is_short ? 1 : 4;
    what.length   = at + what.width;
    what.leaves   = (opcode == near_jump) || (opcode == short_jump);
    return true;
}

/* False for what is not known. */
bool decode(const uint8_t *code, instruction &what)
{
    if (decode_jump(code, 0, what)) {
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
    operands form;
    if (opcode == two_byte_opcode) {
        form = two_byte_operands(code[at++]);
    } else {
        form = one_byte_operands(opcode, (code[at] >> 3) & 7, wide);
    }
    if (!form.known || (short_operand && (form.bytes > 1))) {
        return false;
    }
    if (form.modrm) {
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
            what.width    = 4;
            at += 4;
        }
        at += (mod == 1) ? 1 : (mod == 2) ? 4 : 0;
    }
    what.length = at + form.bytes;
    return true;
}

template <typename Integer>
Integer load(const uint8_t *from)
{
    Integer value;
    std::memcpy(&value, from, sizeof(value));
    return value;
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

/* Write a near jump with a near displacement. */
bool write_jump(unsigned opcode, const uint8_t *target, uint8_t *&out)
{
    if (in_range(opcode, 0x70, 0x7f)) {
        opcode += 0x0f80 - 0x70;
    } else if (opcode == short_jump) {
        opcode = near_jump;
    }
    if (opcode > 0xff) {
        *out++ = two_byte_opcode;
    }
    *out++ = static_cast<uint8_t>(opcode);
    out += 4;
    return store_distance(out - 4, target, out);
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
        const uint8_t *end    = in + what.length;
        const uint8_t *target = nullptr;
        if (what.relative != 0) {
            target =
                end + ((what.width == 1) ? load<int8_t>(in + what.relative)
                                         : load<int32_t>(in + what.relative));
        }
        if (what.opcode != 0) {
            if (((target >= function) && (target < function + bytes)) ||
                !write_jump(what.opcode, target, out)) {
                return false;
            }
            if (what.leaves) {
                return end >= function + bytes;
            }
        } else {
            std::memcpy(out, in, what.length);
            out += what.length;
            if ((target != nullptr) &&
                !store_distance(out - what.length + what.relative, target,
                                out)) {
                return false;
            }
        }
        in = end;
    }
    return write_jump(near_jump, in, out);
}

} // namespace gaudi::base
