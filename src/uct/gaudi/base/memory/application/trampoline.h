/**
 * A callable original of a function whose first instructions are about to be
 * overwritten by a jump.
 *
 * UCX 1.13 makes one only of a few kinds of instructions, which compiled
 * functions seldom start with. This one moves what compilers put there: it
 * knows the instructions' lengths, and adjusts those that are relative to their
 * own address. What it does not know it refuses.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gaudi::base {

/** Whether functions can be patched: the code here is that of x86-64. */
#ifdef __x86_64__
inline constexpr bool can_patch_functions = true;
#else
inline constexpr bool can_patch_functions = false;
#endif

/** Bytes that a trampoline takes at most. */
inline constexpr size_t trampoline_bytes = 96;

/** Bytes of a jump that reaches code at most 2 GB away. */
inline constexpr size_t near_jump_bytes = 5;

/** Bytes of a jump that reaches all code. */
inline constexpr size_t far_jump_bytes = 14;

/** Write a jump to any code. */
void write_far_jump(uint8_t *code, const void *target);

/** Map memory for code that a near jump from a function reaches, writable.
 *  @return nullptr when there is none. */
[[nodiscard]] uint8_t *map_code_near(const void *function, size_t bytes);

/** Make it executable, and no longer writable. */
[[nodiscard]] bool finish_code(uint8_t *code, size_t bytes);

/**
 * Write a trampoline.
 *
 * @param function  Code to move instructions from; it stays as it is.
 * @param bytes     How many of its bytes are to be overwritten.
 * @param code      Where to write, at most @ref trampoline_bytes.
 * @return Whether it was possible: not for unknown instructions, for a target
 *         or operand farther than 2 GB, and for a jump back into the bytes.
 */
[[nodiscard]] bool write_trampoline(const uint8_t *function, size_t bytes,
                                    uint8_t *code);

/** A function, and where it is to jump instead of doing its work. */
struct function_jump {
    void *function;
    const void *target; /**< a near jump reaches it */
};

/**
 * Let functions begin with near jumps, while other threads may call them.
 *
 * Threads that come to one meanwhile go round in it, and those that are in the
 * bytes that change have some milliseconds to leave them, as in UCX from 1.16
 * on, which waits for each function by itself.
 *
 * @return false when their code cannot be written to: all stay as they are.
 */
[[nodiscard]] bool write_jumps(std::span<const function_jump> jumps);

} // namespace gaudi::base
