/**
 * What fork() means for the emulator.
 *
 * A card belongs to the process that opened it. In a forked child every call on
 * an inherited compute node but hlthunk_close answers -ENODEV, and no engine
 * thread runs. Here the emulator differs from the driver, which lets a child
 * act on the context of its parent: the emulated card is the memory and the
 * threads of one process. The node stays open, and so the card taken, until
 * the child has closed it, too; nothing that the child does touches the
 * parent's jobs, memory or dma-bufs. The child may open other cards, and use
 * the control nodes that it inherited.
 *
 * A handler in the child does this, as fork_handlers.h demands: fork() waits
 * for no lock of the emulator, whose callers may hold locks that other handlers
 * of fork() wait for. So the child's copy of a card may be half changed. It is
 * put aside unread, and all locks are made anew. The child needs to know but
 * the descriptors of the node and of what keeps others out. It finds them where
 * a thread of the parent may have been writing, and compares them with the
 * files. The memory of the card and imported dma-bufs are
 * util::closed_in_children.
 */
#pragma once

namespace gaudi::emu {

/**
 * Have that done from now on. Call before a card is opened; more than once is
 * fine.
 *
 * Throws bad_alloc.
 */
void prepare_for_fork();

} // namespace gaudi::emu
