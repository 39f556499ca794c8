/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What may crash or hang, tried in a child: how that ended, and what it said.
 * The caller's process keeps nothing of it.
 */
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace launcher {

struct trial {
    enum class end {
        unborn, /**< there was no child */
        exited, /**< by itself, with @ref code */
        killed, /**< by the signal @ref code */
        late,   /**< it was killed at the end of its time */
        stuck   /**< the same, and it lives on: it waits inside the kernel */
    };

    end how        = end::exited;
    int code       = -1;
    double seconds = 0;
    std::string output; /**< stdout and stderr */

    /** What it did last, as " while loading X"; empty: it did not say. */
    [[nodiscard]] std::string activity() const;
};

/** Before what a child prints of its next action; modules do so, too. */
inline constexpr char doing_mark[] = "- ";

/** The last line that begins with a mark, printable and without it. */
std::string last_line(const std::string &output, const std::string &mark = "");

/**
 * Run a function in a child, with what was loaded into this process.
 *
 * @param body  Returns the exit code; nothing that it leaves is destroyed. When
 *              it throws, the code is 255 and the output ends with the reason.
 * @return Code -1, and why in the output, when no child could be made.
 */
trial run_in_child(const std::function<int()> &body,
                   std::chrono::milliseconds limit);

/**
 * Try what may end the process, in a child with what was loaded into this one.
 *
 * @param body       Returns what is wrong, or nothing; may end the child, and
 *                   print.
 * @param printed_p  Set to the child's output when nothing is wrong.
 * @return That, or how it ended, with what UCX's log complained of first; in a
 *         line.
 */
std::string try_in_child(const std::function<std::string()> &body,
                         std::string *printed_p = nullptr);

} // namespace launcher
