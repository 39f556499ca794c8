/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which process this is, and what there is of it once.
 *
 * A forked child has a copy of every object of its parent, but the cards, their
 * queues and the threads are the parent's. What there is once per process is
 * part of the process context. A child gets another one, which is empty: the
 * handler of forks swaps one pointer, and every part is made anew when it is
 * asked for. So whoever keeps its state in a part need not think of forks. What
 * the parent had stays as it is in the child, reachable and untouched: it may
 * be half changed, and its locks taken. What the child is to lose of it, such
 * as a descriptor, is closed_in_children (util/fork_handlers.h).
 *
 * A child that is forked while something is open (in_use) may exec or exit,
 * and nothing else: is_cut_off. Others keep objects of the parent's there.
 */
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gaudi::util {

namespace detail {
extern std::atomic<bool> cut_off;
}

/** Whether this process was forked while its parent had something open. What it
 *  has of that is the parent's. Costs a load. */
inline bool is_cut_off()
{
    return detail::cut_off.load(std::memory_order_relaxed);
}

/** Something that is open, for as long as this object lives. */
class in_use {
public:
    in_use();
    ~in_use();
    in_use(const in_use &)            = delete;
    in_use &operator=(const in_use &) = delete;
};

/** Names this process, and no other one, not even a parent or a later one with
 *  its pid. */
uint64_t process_identity();

/**
 * Paths of what is mapped to be executed, each once, the program's too. Read
 * from the calling thread's /proc, not by dl_iterate_phdr: a child that was
 * forked while another thread was in that function, or in the middle of dlopen,
 * never gets into it, for glibc renews but one of the loader's two locks
 * (__libc_fork in glibc's posix/fork.c). Empty without /proc.
 */
std::vector<std::string> loaded_files();

/**
 * dlopen of what is loaded already, past UCM's replacement of it: that patches
 * all libraries, though nothing new has come, and asks dl_iterate_phdr
 * (ucm_dlopen in UCX's src/ucm/util/reloc.c).
 *
 * @param name   nullptr: the program.
 * @param flags  As of dlopen. @return nullptr when it is not loaded.
 */
void *open_loaded(const char *name, int flags = 0);

/**
 * What a process has once.
 *
 * Parts are made without a lock: a child that is forked meanwhile does not wait
 * for a thread that it does not have, as it would for the initialisation of a
 * static inside a function. Several threads may make one each at the same time,
 * of which one stays: constructors register nothing, start nothing and open
 * nothing that the destructor does not undo.
 *
 * Never destroyed: UCX's own clean-up order is not ours to know. Any thread.
 */
class process_context {
public:
    /** That of this process. */
    static process_context &current()
    {
        process_context *known = current_.load(std::memory_order_acquire);
        return (known != nullptr) ? *known : make();
    }

    /** The part of a type; costs three loads once it is there. One that has a
     *  function after_fork_in_child has it called in each child, of the
     *  parent's part: it may only store.
     *  @throws what the constructor throws, and bad_alloc. */
    template <typename T>
    T &get()
    {
        static constinit std::atomic<unsigned> place{0};
        part &mine  = parts_[index_of(place)];
        void *known = mine.object.load(std::memory_order_acquire);
        if (known == nullptr) {
            auto fresh = std::make_unique<T>();
            if constexpr (requires { fresh->after_fork_in_child(); }) {
                mine.in_child.store([](void *parents) {
                    static_cast<T *>(parents)->after_fork_in_child();
                });
            }
            if (mine.object.compare_exchange_strong(known, fresh.get())) {
                known = fresh.release();
            }
        }
        return *static_cast<T *>(known);
    }

private:
    /* Types; each takes one place, or two, if two threads meet it first. */
    static constexpr unsigned max_parts = 64;

    struct part {
        std::atomic<void *> object{nullptr};
        std::atomic<void (*)(void *)> in_child{nullptr};
    };

    static process_context &make();
    static void leave_to_parent();
    static unsigned index_of(std::atomic<unsigned> &place)
    {
        const unsigned known = place.load(std::memory_order_acquire);
        return (known != 0) ? known : take_index(place);
    }
    static unsigned take_index(std::atomic<unsigned> &place);

    static std::atomic<process_context *> current_;

    std::array<part, max_parts> parts_;
    process_context *parents_ = nullptr; /* keeps it reachable */
};

/** The part of a type of this process's context. */
template <typename T>
T &of_this_process()
{
    return process_context::current().get<T>();
}

} // namespace gaudi::util
