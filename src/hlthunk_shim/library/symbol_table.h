/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A library that is found when the process runs, and the functions in it: a
 * derived class has a pointer for each, which it looks up when it is made.
 *
 * Immutable from then on, so any thread may call through it. Never unloaded:
 * driver libraries start threads and profiler hooks of their own.
 */
#pragma once

#include <string>

namespace gaudi::shim {

class symbol_table {
public:
    /** Called with the name of each library before it is loaded; null: nothing
     *  is. Set before any thread loads one. */
    static inline void (*before_loading)(const char *path) = nullptr;

    symbol_table(const symbol_table &)            = delete;
    symbol_table &operator=(const symbol_table &) = delete;

    /** Why the library cannot be used: it is not there, or lacks what is
     *  required of it. Empty: it can. */
    [[nodiscard]] const std::string &reason() const { return reason_; }
    [[nodiscard]] bool usable() const
    {
        return (handle_ != nullptr) && reason_.empty();
    }

    /** The optional symbols that it does not have. */
    [[nodiscard]] const std::string &lacks() const { return lacks_; }

    /** The loader's handle; nullptr when the library could not be loaded. */
    [[nodiscard]] void *handle() const { return handle_; }

    /** Whether the process had it before, so that others may call it through
     *  pointers of their own. */
    [[nodiscard]] bool was_loaded() const { return was_loaded_; }

    /** Address of any symbol; nullptr when the library does not export it. */
    [[nodiscard]] void *find(const char *symbol) const;

    /** The file that code is in; empty: none. */
    [[nodiscard]] static std::string file_of(const void *code);

protected:
    enum class need { required, optional, extension };

    symbol_table() = default;

    /** Use a library that the process has, or else load it. May be tried again
     *  with another one.
     *  @param flags  As of dlopen.
     *  @return false when it is not there, for a reason if it was loaded. */
    bool open(const std::string &path, bool load = true, int flags = 0);

    /** Look a symbol up, and note if it is missing, unless it is an
     *  extension. */
    template <typename Function>
    void look_up(Function *&function_p, const std::string &name, need why)
    {
        function_p = reinterpret_cast<Function *>(look_up(name, why));
    }

    /** All were looked up. @param file  What messages call the library. */
    void finish(const std::string &file)
    {
        if (!missing_.empty()) {
            reason_ = file + " lacks " + missing_;
        }
    }

private:
    void *look_up(const std::string &name, need why);

    std::string reason_;
    std::string missing_;
    std::string lacks_;
    void *handle_    = nullptr;
    bool was_loaded_ = false;
};

} // namespace gaudi::shim
