/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/library/symbol_table.h"

#include "util/process.h"

#include <cstring>

#include <dlfcn.h>

namespace gaudi::shim {

bool symbol_table::open(const std::string &path, bool load, int flags)
{
    handle_     = util::open_loaded(path.c_str(), flags);
    was_loaded_ = (handle_ != nullptr);
    if (!was_loaded_ && load) {
        if (before_loading != nullptr) {
            before_loading(path.c_str());
        }
        handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    }
    if (handle_ != nullptr) {
        reason_.clear();
        return true;
    }
    if (!load) {
        return false;
    }
    /* What is wrong with one that is there tells more than that another is
     * not. */
    const char *error = dlerror();
    if (reason_.empty() || (error == nullptr) ||
        (std::strstr(error, "No such file") == nullptr)) {
        reason_ = (error != nullptr) ? error : "dlopen failed";
    }
    return false;
}

void *symbol_table::find(const char *symbol) const
{
    return (handle_ != nullptr) ? dlsym(handle_, symbol) : nullptr;
}

void *symbol_table::look_up(const std::string &name, need why)
{
    void *found = find(name.c_str());
    if ((found == nullptr) && (why != need::extension)) {
        std::string &list = (why == need::required) ? missing_ : lacks_;
        list += (list.empty() ? "" : ", ") + name;
    }
    return found;
}

std::string symbol_table::file_of(const void *code)
{
    Dl_info info;
    return (dladdr(code, &info) != 0) ? info.dli_fname : "";
}

} // namespace gaudi::shim
