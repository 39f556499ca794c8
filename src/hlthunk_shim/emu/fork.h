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
 * Handlers of pthread_atfork do this. A child that was made without them
 * (vfork, _Fork, clone) must do nothing here but exec or exit.
 *
 * fork() takes all locks of the emulator, in this order, so that the child's
 * copy is of one piece:
 *   1. the list of the cards that this process ever opened (here),
 *   2. the lock of each of these cards, by index,
 *   3. the lock of the engine threads.
 * No other code holds two of them at a time. A thread that sleeps, or copies a
 * large slice, holds none: what it was about is over for the child.
 */
#pragma once

namespace gaudi::emu {

class card;

/**
 * Make a card part of that, before it is opened for the first time. Call
 * without the card's lock; more than once is fine.
 *
 * Throws bad_alloc.
 */
void prepare_for_fork(card &opened);

} // namespace gaudi::emu
