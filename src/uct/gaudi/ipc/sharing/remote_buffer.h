/**
 * A buffer of another process: where cards of ours find what is in it.
 *
 * Which buffers there are, and what they may have mapped, the cache knows:
 * remote_buffers.h.
 *
 * Threads: any, and one of its own for each import that takes long. While a
 * window is imported, only its own lock is held.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/memory/import_windows.h"
#include "uct/gaudi/ipc/process/shared_page.h"
#include "uct/gaudi/ipc/sharing/key.h"

#include <cstdint>
#include <memory>

namespace gaudi::ipc {

class remote_buffer;
class remote_buffers;

/** Who counts what buffers have mapped. Called under no lock but a window's. */
class import_counter {
public:
    /** A window was imported, or never can be: 0 bytes. */
    virtual void opened(remote_buffer &buffer, const base::kept_window &window,
                        uint64_t bytes) = 0;
    /** A buffer goes, with all its windows. */
    virtual void gone(remote_buffer &buffer) = 0;
    /** So many more threads use cards for imports. */
    virtual void count_threads(int change) = 0;

protected:
    ~import_counter() = default;
};

/** A buffer of another process. Shared by the keys into it and the cache. */
class remote_buffer : public std::enable_shared_from_this<remote_buffer> {
public:
    /** Imports of more bytes are made in the background, if nobody waits for
     *  them. By what the driver needs for a page, 0.3 us while it has few, this
     *  many take some ten milliseconds. */
    static constexpr uint64_t quick_bytes = 2 * base::window_grain;

    /** @param counter  Outlives it. */
    remote_buffer(std::shared_ptr<foreign_page> of, const wire_key &key,
                  import_counter &counter);
    ~remote_buffer() { counter_.gone(*this); }
    remote_buffer(const remote_buffer &)            = delete;
    remote_buffer &operator=(const remote_buffer &) = delete;

    /** Whether its process has withdrawn it. */
    [[nodiscard]] bool is_withdrawn() const
    {
        return of_->cell(key_.buffer.cell) != key_.buffer.stamp;
    }

    /** Keep the window of a range from being unmapped.
     *  @return nullptr for what is not in the buffer. Throws bad_alloc. */
    [[nodiscard]] base::kept_window keep(uint64_t address, uint64_t length);

    /** Where a card finds a range of it, which is kept; imports the window when
     *  the card uses it for the first time.
     *  @param waits  Else an import that takes long is made in the background.
     *  @return 0, or -errno: -EOPNOTSUPP when the driver cannot import, -ENOENT
     *          when it is withdrawn, -ESRCH when its process has died, -EFAULT
     *          for what is not in the buffer; -EINPROGRESS. */
    [[nodiscard]] int va_on(base::card &user, uint64_t address, uint64_t length,
                            bool waits, uint64_t &va_p);

private:
    friend class remote_buffers;

    [[nodiscard]] int import_once(base::card &user,
                                  const base::kept_window &window,
                                  uint64_t &first_p);
    [[nodiscard]] base::card_mappings::answer
    import_on(base::card &user, const base::kept_window &window,
              shim::registration &mapping);
    [[nodiscard]] bool start_import(base::card &user,
                                    const base::kept_window &window);

    const std::shared_ptr<foreign_page> of_;
    const wire_key key_; /* that it was opened with */
    import_counter &counter_;
    base::import_windows windows_;
    unsigned mapped_ = 0; /* of them; under the cache's lock */
};

} // namespace gaudi::ipc
